//! Pools of 1 to 4 channels, as large as the other end's or not (laws L3.1, L3.2 and L3.5).

use std::collections::{BTreeSet, HashMap};

use admit_one::{
    lanes::{Config, Outbound, Settlement},
    link::{Arrival, Channel},
    message::Class,
};
use futures::{StreamExt, future::join_all};
use tokio::sync::{mpsc, watch};
use tower::service_fn;

use crate::{
    both_transports,
    support::{Node, Options, Transport, frame, in_time, read},
};

both_transports! {
    l3_1_order_is_kept_per_class_both_ways_between_pools_of_any_two_sizes,
    l3_5_a_stall_holds_up_the_lanes_of_its_own_channel_alone_at_every_pool_size,
}

async fn with_pool(transport: Transport, pool: u8) -> Node {
    Node::with(transport, Options { config: Config::default().pool(pool), ..Options::default() }).await
}

async fn l3_1_order_is_kept_per_class_both_ways_between_pools_of_any_two_sizes(transport: Transport) {
    for one in 1..=4 {
        for other in one..=4 {
            both_ways(transport, [one, other]).await;
        }
    }
}

const FRAMES: u64 = 50;

/// Sends in every lane both ways at once.
async fn both_ways(transport: Transport, pools: [u8; 2]) {
    let mut nodes = [with_pool(transport, pools[0]).await, with_pool(transport, pools[1]).await];
    nodes[0].know(&nodes[1]);
    let dids = [nodes[0].did, nodes[1].did];
    let mut finds = nodes.each_mut().map(record);
    let sending: Vec<_> = [(0, 1), (1, 0)]
        .into_iter()
        .flat_map(|(from, to)| Class::ALL.map(|class| (nodes[from].outbound.clone(), dids[to], class)))
        .map(|(outbound, next_hop, class)| {
            tokio::spawn(async move {
                let mut settlements = Vec::new();
                for sequence in 0..FRAMES {
                    let length = if sequence % 17 == 0 { 31_000 } else { 1 + sequence as usize * 37 };
                    settlements.push(outbound.send(frame(next_hop, class, sequence, length)).await.unwrap());
                }
                join_all(settlements).await
            })
        })
        .collect();
    for (finds, pool) in finds.iter_mut().zip([pools[1], pools[0]]) {
        let mut sequences: HashMap<Class, Vec<u64>> = HashMap::new();
        let mut channels = BTreeSet::new();
        for _ in 0..FRAMES as usize * Class::ALL.len() {
            let (channel, class, sequence) = in_time(finds.recv()).await.unwrap();
            assert_eq!(channel, Channel { index: class.lane() % pool, pool }, "{class:?}, pools {pools:?}");
            channels.insert(channel);
            sequences.entry(class).or_default().push(sequence);
        }
        let in_order: Vec<u64> = (0..FRAMES).collect();
        assert!(Class::ALL.iter().all(|class| sequences[class] == in_order), "pools {pools:?}: {sequences:?}");
        assert_eq!(channels.len(), usize::from(pool), "every channel of the opener's pool is used");
    }
    for settled in sending {
        assert!(in_time(settled).await.unwrap().iter().all(Result::is_ok));
    }
}

/// Tells each frame that comes, with the channel that it came on.
fn record(node: &mut Node) -> mpsc::UnboundedReceiver<(Channel, Class, u64)> {
    let (found, finds) = mpsc::unbounded_channel();
    let incoming = node.incoming();
    tokio::spawn(incoming.for_each_concurrent(None, move |mut inbound| {
        let found = found.clone();
        async move {
            while let Some(arrival) = inbound.next().await {
                let (class, sequence) = read(&arrival);
                let _ = found.send((inbound.channel(), class, sequence));
            }
        }
    }));
    finds
}

async fn l3_5_a_stall_holds_up_the_lanes_of_its_own_channel_alone_at_every_pool_size(transport: Transport) {
    const STALLED: Class = Class::Storage;
    for pool in 1..=4 {
        // The receiver's own pool says nothing of what it receives.
        let (sender, mut receiver) = (with_pool(transport, pool).await, with_pool(transport, 5 - pool).await);
        sender.know(&receiver);
        let (gate, gated) = watch::channel(false);
        let (called, mut calls) = mpsc::unbounded_channel();
        let service = service_fn(move |arrival: Arrival| {
            let (mut gated, called) = (gated.clone(), called.clone());
            async move {
                let (class, sequence) = read(&arrival);
                let _ = called.send((class, sequence));
                if class == STALLED {
                    gated.wait_for(|open| *open).await.unwrap();
                }
                drop(arrival);
                Ok::<_, std::convert::Infallible>(())
            }
        });
        tokio::spawn(receiver.incoming().serve(service));
        let mut waiting = send(&sender.outbound, &receiver, STALLED, 20).await;
        // The window of its channel is full of it before any other lane has a frame.
        for sequence in 0..8 {
            assert_eq!(in_time(calls.recv()).await, Some((STALLED, sequence)));
        }
        for class in Class::ALL.into_iter().filter(|class| *class != STALLED) {
            let sends = send(&sender.outbound, &receiver, class, 40).await;
            if class.lane() % pool == STALLED.lane() % pool {
                waiting.extend(sends);
            } else {
                assert!(in_time(join_all(sends)).await.iter().all(Result::is_ok), "pool {pool}, {class:?}");
            }
        }
        let shares = |class: Class| class.lane() % pool == STALLED.lane() % pool;
        while let Ok((class, _)) = calls.try_recv() {
            assert!(!shares(class), "pool {pool}: nothing passes in the stalled channel, its window being full");
        }
        assert!(futures::poll!(&mut waiting[0]).is_pending());
        gate.send(true).unwrap();
        assert!(in_time(join_all(waiting)).await.iter().all(Result::is_ok), "and nothing is lost by the stall");
    }
}

async fn send(outbound: &Outbound, to: &Node, class: Class, count: u64) -> Vec<Settlement> {
    let mut settlements = Vec::new();
    for sequence in 0..count {
        settlements.push(in_time(outbound.send(frame(to.did, class, sequence, 100))).await.unwrap());
    }
    settlements
}
