//! The parent: starts the server, calls it in every way, kills it, and says what came of each call.

use std::{net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use admit_one::{KeySigner, layer::single_use::Call};
use axum::http::HeaderMap;
use bytes::Bytes;
use libp2p::Multiaddr;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::{
    Failure,
    caller::{Caller, post, send},
    peer::Peer,
    protocol::{Event, Point, Refused, Reply, ServerConfig},
    report::{Expected, Report, Step},
};

/// How long anything may take before the run is given up as stuck.
const STALL: Duration = Duration::from_secs(60);

const APPEND: &str = "/notes/append";
const STAMP: &str = "/notes/stamp";
const PROOFS: &str = "a proof, at the effect boundary";
const OPERATIONS: &str = "an operation";
const RELEASE: &str = "its release";
const STORE: &str = "its store";
const KILLS: &str = "killed";

/// The server process.
struct Server {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
    http: SocketAddr,
    libp2p: Multiaddr,
}

impl Server {
    async fn start(config: &ServerConfig, hold: Option<Point>) -> Result<Self, Failure> {
        let config = ServerConfig { hold, ..config.clone() };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--server").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (stdin, stdout) = (child.stdin.as_mut(), child.stdout.take());
        let line = serde_json::to_string(&config)? + "\n";
        stdin.ok_or("no way to tell the server")?.write_all(line.as_bytes()).await?;
        let mut events = BufReader::new(stdout.ok_or("no way to hear the server")?).lines();
        let Event::Ready { http, libp2p } = next(&mut events).await? else { return Err("it is not ready".into()) };
        Ok(Self { child, events, http, libp2p })
    }

    async fn kill(mut self) -> Result<(), Failure> {
        // SIGKILL: nothing of it runs any more, and nothing that it had in memory is written.
        Ok(self.child.kill().await?)
    }
}

async fn next(events: &mut Lines<BufReader<ChildStdout>>) -> Result<Event, Failure> {
    let line = tokio::time::timeout(STALL, events.next_line()).await??;
    Ok(serde_json::from_str(&line.ok_or("the server ended")?)?)
}

/// What was done so far.
struct Run {
    report: Report,
    notes: PathBuf,
    expected_notes: usize,
}

impl Run {
    fn notes(&self) -> usize {
        std::fs::read_to_string(&self.notes).unwrap_or_default().lines().count()
    }

    fn step(&mut self, part: &'static str, step: impl Into<String>, expected: &Expected<'_>, reply: &Reply) {
        self.expected_notes += expected.runs();
        let notes = (self.notes(), self.expected_notes);
        self.report.steps.push(Step::new(part, step, expected, reply, notes));
    }
}

pub async fn run() -> Result<Report, Failure> {
    let directory = tempfile::tempdir()?;
    let path = |name| directory.path().join(name);
    let (server, subject): ([u8; 32], [u8; 32]) = (rand::random(), rand::random());
    let caller = Caller { issuer: KeySigner::generate(), subject: KeySigner::from_secret(&subject)? };
    let config = ServerConfig {
        store: path("store"),
        notes: path("notes"),
        issuer: caller.issuer.key(),
        secret: server,
        hold: None,
    };
    let mut run = Run { report: Report::default(), notes: path("notes"), expected_notes: 0 };
    let running = Server::start(&config, None).await?;
    proofs(&mut run, &caller, running.http).await?;
    let server = KeySigner::from_secret(&server)?.key();
    let mut peer = Peer::start(&subject, &path("peer"), server, running.libp2p.clone()).await?;
    let (first, answer) = operations(&mut run, &caller, running.http, &mut peer).await?;
    released(&mut run, &caller, running.http, &first, &answer).await?;
    run.step(STORE, "a second server on its store", &Expected::Refused("in use", "no"), &second(&config).await?);
    running.kill().await?;
    run.report.kills += 1;
    killed(&mut run, &caller, &config).await?;
    // Nothing was forgotten over all this.
    let running = Server::start(&config, None).await?;
    let reply = post(running.http, APPEND, &caller.show(&first, FIRST)).await?;
    run.step(KILLS, "the first operation, retried at the end", &Expected::Same(&answer), &reply);
    running.kill().await?;
    run.report.holds = run.report.steps.iter().all(|step| step.holds);
    Ok(run.report)
}

async fn proofs(run: &mut Run, caller: &Caller, http: SocketAddr) -> Result<(), Failure> {
    let mut step = |name: &str, expected: Expected<'_>, reply: &Reply| run.step(PROOFS, name, &expected, reply);
    let call = caller.call(STAMP, "stamp-1", "a note");
    let original = caller.show(&call, "a note");
    step("original request", Expected::Ran, &post(http, STAMP, &original).await?);

    let next = caller.call(STAMP, "stamp-2", "a note");
    let shown = caller.show(&next, "a note");
    let headers = admit_one::layer::credential::http::to_headers(&shown)?;
    let changed = send(http, STAMP, headers, Bytes::from_static(b"another note")).await?;
    step("changed arguments", Expected::Refused("request_binding_mismatch", "no"), &changed);
    step("its own arguments: the nonce was not burnt", Expected::Ran, &post(http, STAMP, &shown).await?);

    step("repeated proof", Expected::Refused("replayed", "yes"), &post(http, STAMP, &original).await?);

    let thief = KeySigner::generate();
    let other = caller.show_as(&thief, &call, "a note");
    step(
        "different signing key",
        Expected::Refused("request_binding_mismatch", "no"),
        &post(http, STAMP, &other).await?,
    );

    step("fresh proof", Expected::Ran, &post(http, STAMP, &caller.show(&call, "a note")).await?);
    Ok(())
}

const FIRST: &str = "the first";

async fn operations(
    run: &mut Run,
    caller: &Caller,
    http: SocketAddr,
    peer: &mut Peer,
) -> Result<(Call, String), Failure> {
    let mut step = |name: &str, expected: Expected<'_>, reply: &Reply| run.step(OPERATIONS, name, &expected, reply);
    let call = caller.call(APPEND, "review-1", FIRST);
    let shown = caller.show(&call, FIRST);
    let original = post(http, APPEND, &shown).await?;
    let answer = original.answer.clone().unwrap_or_default();
    step("original request", Expected::Ran, &original);
    step("exact retry, repeated proof", Expected::Same(&answer), &post(http, APPEND, &shown).await?);
    let fresh = post(http, APPEND, &caller.show(&call, FIRST)).await?;
    step("exact retry, fresh proof", Expected::Same(&answer), &fresh);
    let frame = peer.sign(&caller.bare(&call, FIRST)).await?;
    step("exact retry over libp2p", Expected::Same(&answer), &peer.ask(frame).await?);

    let conflict = Call { arguments: Call::hash_arguments(b"the second"), ..call.clone() };
    let reply = post(http, APPEND, &caller.show(&conflict, "the second")).await?;
    step("changed arguments under its request id, fresh proof", Expected::Refused("conflict", "no"), &reply);

    let headers = |request_id: &'static str| -> Result<HeaderMap, Failure> {
        let mut headers = admit_one::layer::credential::http::to_headers(&caller.show(&call, FIRST))?;
        headers.insert("admit-request-id", request_id.parse()?);
        Ok(headers)
    };
    let renamed = send(http, APPEND, headers("reused-authority")?, Bytes::from_static(FIRST.as_bytes())).await?;
    step("renamed, its authority reused", Expected::Refused("request_binding_mismatch", "no"), &renamed);

    let second = caller.call(APPEND, "review-2", "by libp2p");
    let frame = peer.sign(&caller.bare(&second, "by libp2p")).await?;
    let original = peer.ask(frame.clone()).await?;
    step("another, over libp2p", Expected::Ran, &original);
    let copied = peer.ask(frame).await?;
    step("a copy of its transaction", Expected::Refused("admission: replay", "no"), &copied);
    let reply = post(http, APPEND, &caller.show(&second, "by libp2p")).await?;
    step("exact retry over HTTP", Expected::Same(&original.answer.unwrap_or_default()), &reply);

    let third = caller.call(APPEND, "review-3", "by eight");
    let shown: Vec<_> = (0..8).map(|_| caller.show(&third, "by eight")).collect();
    let replies = futures::future::try_join_all(shown.iter().map(|shown| post(http, APPEND, shown))).await?;
    let ran = replies.iter().find(|reply| !reply.replayed).ok_or("none of eight ran")?;
    step("eight at once: one", Expected::Ran, ran);
    let answer_of_one = ran.answer.clone().unwrap_or_default();
    for reply in replies.iter().filter(|reply| !std::ptr::eq(*reply, ran)) {
        step("eight at once: another", Expected::Same(&answer_of_one), reply);
    }
    Ok((call, answer))
}

async fn released(run: &mut Run, caller: &Caller, http: SocketAddr, call: &Call, answer: &str) -> Result<(), Failure> {
    let mut step = |name: &str, expected: Expected<'_>, reply: &Reply| run.step(RELEASE, name, &expected, reply);
    send(http, "/operator/stop", HeaderMap::new(), Bytes::new()).await?;
    let stopped = post(http, APPEND, &caller.show(call, FIRST)).await?;
    step("exact retry under the emergency stop", Expected::Refused("stopped", "no"), &stopped);
    send(http, "/operator/resume", HeaderMap::new(), Bytes::new()).await?;
    let reply = post(http, APPEND, &caller.show(call, FIRST)).await?;
    step("exact retry once it ended", Expected::Same(answer), &reply);
    Ok(())
}

/// Starts another server while one runs, and says what became of it.
async fn second(config: &ServerConfig) -> Result<Reply, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--server").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let line = serde_json::to_string(config)? + "\n";
    child.stdin.take().ok_or("no way to tell the server")?.write_all(line.as_bytes()).await?;
    let ended = tokio::time::timeout(STALL, child.wait_with_output()).await??;
    let reason = String::from_utf8_lossy(&ended.stderr).into_owned();
    let code = if !ended.status.success() && reason.contains("Locked") { "in use" } else { "not refused" };
    Ok(Reply { answer: Err(Refused { code: code.into(), consumed: "no".into(), reason }), replayed: false })
}

/// Kills the server at each point of a call, starts it again, and retries.
async fn killed(run: &mut Run, caller: &Caller, config: &ServerConfig) -> Result<(), Failure> {
    let points = [
        (Point::Reserved, "between reserve and effect, before it began"),
        (Point::Begun, "between reserve and effect, once it began"),
        (Point::Effect, "between effect and record"),
        (Point::Recorded, "between record and answer"),
    ];
    for (place, (point, name)) in points.into_iter().enumerate() {
        let text = format!("killed at {place}");
        let call = caller.call(APPEND, &format!("held-{place}"), &text);
        let outcome = kill_at(point, config, caller.show(&call, &text)).await?;
        run.report.kills += 1;
        // What it did before it was killed, it did.
        run.expected_notes += usize::from(matches!(point, Point::Effect | Point::Recorded));

        let running = Server::start(config, None).await?;
        let retry = post(running.http, APPEND, &caller.show(&call, &text)).await?;
        let expected = match (point, &outcome) {
            (Point::Reserved, _) => Expected::Ran,
            (Point::Begun | Point::Effect, _) => Expected::Refused("outcome_unknown", "yes"),
            (Point::Recorded, outcome) => Expected::Same(outcome.as_deref().unwrap_or_default()),
        };
        run.step(KILLS, format!("{name}: retry"), &expected, &retry);
        let again = post(running.http, APPEND, &caller.show(&call, &text)).await?;
        let bytes = retry.answer.clone().unwrap_or_default();
        let expected = if retry.answer.is_ok() { Expected::Same(&bytes) } else { expected };
        run.step(KILLS, "  and again", &expected, &again);
        running.kill().await?;
        run.report.kills += 1;
    }
    Ok(())
}

/// Sends a call, kills the server once the call is at `point`, and says what outcome was recorded there, if one was.
async fn kill_at(
    point: Point,
    config: &ServerConfig,
    shown: admit_one::layer::credential::Envelope,
) -> Result<Option<String>, Failure> {
    let mut running = Server::start(config, Some(point)).await?;
    let http = running.http;
    let caller = tokio::spawn(async move { post(http, APPEND, &shown).await });
    let Event::At { point: at, outcome } = next(&mut running.events).await? else { return Err("not there".into()) };
    if at != point {
        return Err(format!("at {at:?} instead of {point:?}").into());
    }
    running.kill().await?;
    match caller.await? {
        Ok(reply) => Err(format!("a killed server answered {reply:?}").into()),
        Err(_) => Ok(outcome),
    }
}
