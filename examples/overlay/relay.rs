//! An honest relay: verifies what it carries, proves its own hop, keeps each lane's order.

use crate::{
    Failure, node,
    protocol::{Event, NodeConfig, tell},
};

pub async fn run(config: &NodeConfig) -> Result<(), Failure> {
    let node = node::start(config)?;
    tokio::spawn(node.incoming.serve(node::relaying(config, node.outbound)));
    tell(&Event::Ready);
    node::drive(node.swarm).await
}
