//! An honest relay: verifies what it carries, proves its own hop, keeps each lane's order. It is a node like any other,
//! so it has a store too, and would admit what is addressed to itself.

use std::path::Path;

use admit_one::lanes;

use crate::{
    Failure, node,
    protocol::{Event, NodeConfig, tell},
};

pub async fn run(config: &NodeConfig, store: &Path) -> Result<(), Failure> {
    let mut node = node::start(config, lanes::Config::default())?;
    tokio::spawn(node.incoming.serve(node::relaying(config, store, node.outbound).await?));
    tell(&Event::Ready);
    node::drive(&mut node.swarm).await;
    Ok(())
}
