//! The parent: starts the nodes, kills two of them under load, counts what their handlers say.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{TcpListener, UdpSocket},
    process::Stdio,
    time::{Duration, Instant},
};

use admit_one::identity::Did;
use indicatif::{ProgressBar, ProgressStyle};
use libp2p::Multiaddr;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
};

use crate::{
    Failure, Options,
    protocol::{Contact, Event, HostileConfig, NodeConfig, Order, OriginConfig, Role, Secret, Transport},
    report::{Latency, Report},
};

/// How long a run may go without any event before it is given up as stuck.
const STALL: Duration = Duration::from_secs(60);

/// How many orders wait for a node that reads slowly.
const ORDERS: usize = 4_096;

/// After the origin is done, what is still on its way has so long to arrive.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Origin,
    Relay,
    Hostile,
    Destination,
}

struct Running {
    child: Child,
    /// A task of its own writes them, so that a node that reads slowly holds up no other.
    orders: mpsc::Sender<Order>,
    /// Events of an earlier life of the node are told apart by this.
    life: u32,
}

struct Overlay {
    configs: HashMap<Node, NodeConfig>,
    running: HashMap<Node, Running>,
    events: mpsc::Receiver<(Node, u32, Option<Event>)>,
    sender: mpsc::Sender<(Node, u32, Option<Event>)>,
    lives: u32,
}

pub async fn run(options: &Options) -> Result<Report, Failure> {
    let stores = tempfile::tempdir()?;
    let keys: HashMap<&str, Secret> =
        ["origin", "account", "device 1", "device 2", "relay", "hostile", "attacker", "destination"]
            .map(|name| (name, Secret::generate()))
            .into();
    let ports = [free_address(options.transport)?, free_address(options.transport)?, free_address(options.transport)?];
    let [relay, hostile, destination] = ["relay", "hostile", "destination"].map(|name| keys[name].did());
    let [relay_at, hostile_at, destination_at] = ports;
    let node = |name: &str, listen: Option<&Multiaddr>, contacts: &[(Did, &Multiaddr)], role: Role| NodeConfig {
        transport: options.transport,
        secret: keys[name],
        listen: listen.cloned(),
        contacts: contacts.iter().map(|(did, address)| Contact { did: *did, address: (*address).clone() }).collect(),
        sigma_ms: options.sigma_ms,
        role,
    };
    let onward = [(destination, &destination_at)];
    let (sender, events) = mpsc::channel(1_024);
    let mut overlay = Overlay {
        configs: [
            (
                Node::Destination,
                node(
                    "destination",
                    Some(&destination_at),
                    &[],
                    Role::Destination { store: stores.path().join("destination") },
                ),
            ),
            (Node::Relay, node("relay", Some(&relay_at), &onward, Role::Relay { store: stores.path().join("relay") })),
            (
                Node::Hostile,
                node(
                    "hostile",
                    Some(&hostile_at),
                    &onward,
                    Role::Hostile(HostileConfig {
                        store: stores.path().join("hostile"),
                        destination,
                        attacker: keys["attacker"],
                        account: keys["account"],
                        device: keys["device 1"],
                    }),
                ),
            ),
            (
                Node::Origin,
                node(
                    "origin",
                    None,
                    &[(relay, &relay_at), (hostile, &hostile_at)],
                    Role::Origin(OriginConfig {
                        store: stores.path().join("origin"),
                        account: keys["account"],
                        devices: [keys["device 1"], keys["device 2"]],
                        destination,
                        transactions: options.transactions,
                        first: [0, 1, 2, 3],
                        seed: options.seed,
                    }),
                ),
            ),
        ]
        .into(),
        running: HashMap::new(),
        events,
        sender,
        lives: 0,
    };
    let honest: HashSet<String> = [relay, hostile].map(|did| did.to_peer_id().to_string()).into();
    overlay.drive(options, &honest).await
}

impl Overlay {
    async fn drive(&mut self, options: &Options, honest: &HashSet<String>) -> Result<Report, Failure> {
        let total = options.transactions;
        let bar = progress(options, total);
        // Kills of the destination at even distances in the dispatches, the origin's between the first two.
        let mut destination_kills: Vec<u64> =
            (1..=options.kills).map(|kill| total * kill / (options.kills + 1)).rev().collect();
        let mut origin_kill = (options.kills > 0).then_some(total * 3 / (2 * (options.kills + 1)));

        self.start(Node::Destination).await?;
        self.await_ready(Node::Destination).await?;
        self.start(Node::Relay).await?;
        self.await_ready(Node::Relay).await?;
        self.start(Node::Hostile).await?;
        self.await_ready(Node::Hostile).await?;
        self.start(Node::Origin).await?;

        let began = Instant::now();
        let mut report = Report { transport: options.transport, ..Report::default() };
        let mut sending: HashSet<u64> = HashSet::new();
        let mut settled: HashSet<u64> = HashSet::new();
        let mut dispatched: HashMap<u64, (String, u64)> = HashMap::new();
        let mut next = [0, 1, 2, 3];
        let mut latency = Latency::default();
        let mut committed: BTreeMap<u32, u64> = BTreeMap::new();
        let mut finished = false;
        let mut progressed = tokio::time::Instant::now();
        loop {
            let wait = if finished { DRAIN } else { STALL };
            let event = match tokio::time::timeout_at(progressed + wait, self.events.recv()).await {
                Ok(event) => event,
                Err(_) if finished => break,
                Err(_) => {
                    return Err(format!("nothing happened for {STALL:?}: {} of {total} sent", sending.len()).into());
                }
            };
            let Some((node, life, event)) = event else { break };
            if !matches!(event, Some(Event::Committed { .. } | Event::References { .. })) {
                progressed = tokio::time::Instant::now();
            }
            let alive = self.running.get(&node).is_some_and(|running| running.life == life);
            match event {
                None if alive => return Err(format!("{node:?} stopped by itself").into()),
                None | Some(Event::Ready) => {}
                Some(Event::Sending { index }) => {
                    sending.insert(index);
                    if let Some(next) = usize::try_from(index % 4).ok().and_then(|class| next.get_mut(class)) {
                        *next = index + 4;
                    }
                }
                Some(Event::Settled { index, lost }) => {
                    settled.insert(index);
                    if let Some(reason) = lost {
                        *report.settled_as_lost.entry(reason).or_default() += 1;
                    }
                }
                // A node that was killed after it said so has said so all the same.
                Some(Event::Finished) => finished |= alive,
                Some(Event::Dispatched { index, digest, micros }) => {
                    let (first, times) = dispatched.entry(index).or_insert_with(|| (digest.clone(), 0));
                    *times += 1;
                    report.dispatched_twice += u64::from(*times > 1);
                    report.forged += u64::from(*first != digest || index >= total);
                    latency.record(micros);
                    bar.set_position(u64::try_from(dispatched.len())?);
                    self.order(Node::Hostile, Order::Admitted { index });
                }
                Some(Event::Refused { kind, peer }) => {
                    report.honest_refused += u64::from(honest.contains(&peer));
                    if honest.contains(&peer) {
                        *report.honest_refusals.entry(kind.clone()).or_default() += 1;
                    }
                    *report.refused.entry(kind).or_default() += 1;
                }
                Some(Event::Committed { batches }) => {
                    committed.insert(life, batches);
                }
                Some(Event::References { hits, misses, bytes_saved }) => {
                    report.reference_hits += hits;
                    report.reference_misses += misses;
                    report.reference_bytes_saved += bytes_saved;
                }
                Some(Event::Attacked { kind }) => *report.attacks.entry(kind).or_default() += 1,
            }
            let count = u64::try_from(dispatched.len())?;
            if destination_kills.last().is_some_and(|at| count >= *at) {
                destination_kills.pop();
                report.kills += 1;
                bar.set_message(format!("destination killed ({})", report.kills));
                self.kill(Node::Destination).await?;
                self.start(Node::Destination).await?;
            }
            if origin_kill.is_some_and(|at| count >= at) && !finished {
                origin_kill = None;
                report.kills += 1;
                report.open_at_origin_kill = u64::try_from(sending.difference(&settled).count())?;
                bar.set_message("origin killed");
                self.kill(Node::Origin).await?;
                if let Some(NodeConfig { role: Role::Origin(config), .. }) = self.configs.get_mut(&Node::Origin) {
                    config.first = next;
                }
                self.start(Node::Origin).await?;
            }
        }
        bar.finish_and_clear();
        report.seconds = (began.elapsed() - DRAIN).as_secs_f64();
        report.sent = u64::try_from(sending.len())?;
        report.dispatched = u64::try_from(dispatched.len())?;
        report.lost = u64::try_from(sending.iter().filter(|index| !dispatched.contains_key(index)).count())?;
        report.batches = committed.values().sum();
        report.latency_micros = latency.quantiles();
        report.conclude(options);
        for (_, mut running) in self.running.drain() {
            running.child.kill().await?;
        }
        Ok(report)
    }

    async fn start(&mut self, node: Node) -> Result<(), Failure> {
        self.lives += 1;
        let life = self.lives;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--node")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("a child without a standard input")?;
        let stdout = child.stdout.take().ok_or("a child without a standard output")?;
        let mut config = serde_json::to_vec(&self.configs[&node])?;
        config.push(b'\n');
        stdin.write_all(&config).await?;
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // The last line of a killed node may be cut; what it would have said did not happen for us.
                if let Ok(event) = serde_json::from_str(&line)
                    && sender.send((node, life, Some(event))).await.is_err()
                {
                    return;
                }
            }
            let _ = sender.send((node, life, None)).await;
        });
        let (orders, ordered) = mpsc::channel(ORDERS);
        tokio::spawn(write_orders(stdin, ordered));
        self.running.insert(node, Running { child, orders, life });
        Ok(())
    }

    /// SIGKILL: nothing in the node runs any more when this returns.
    async fn kill(&mut self, node: Node) -> Result<(), Failure> {
        if let Some(mut running) = self.running.remove(&node) {
            running.child.kill().await?;
        }
        Ok(())
    }

    async fn await_ready(&mut self, node: Node) -> Result<(), Failure> {
        loop {
            match tokio::time::timeout(STALL, self.events.recv()).await? {
                Some((from, _, Some(Event::Ready))) if from == node => return Ok(()),
                Some((from, _, None)) => return Err(format!("{from:?} stopped by itself").into()),
                Some(_) => {}
                None => return Err("every node is gone".into()),
            }
        }
    }

    /// Tells a node something. Where it lags too far behind, or is gone, the order is dropped: it is only a hint.
    fn order(&self, node: Node, order: Order) {
        if let Some(running) = self.running.get(&node) {
            drop(running.orders.try_send(order));
        }
    }
}

async fn write_orders(mut stdin: ChildStdin, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.recv().await {
        let Ok(mut line) = serde_json::to_vec(&order) else { return };
        line.push(b'\n');
        // A node that is gone is noticed by its standard output.
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

fn progress(options: &Options, total: u64) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    // Drawn on standard error, and by itself only where that is a terminal.
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} dispatched, {per_sec}, {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// A loopback address whose port nobody listens on, kept across a node's restarts.
fn free_address(transport: Transport) -> Result<Multiaddr, Failure> {
    Ok(match transport {
        Transport::Tcp => {
            format!("/ip4/127.0.0.1/tcp/{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()).parse()?
        }
        Transport::Quic => {
            format!("/ip4/127.0.0.1/udp/{}/quic-v1", UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port()).parse()?
        }
    })
}
