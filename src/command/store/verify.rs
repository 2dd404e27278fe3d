//! `store verify`: every record read and decoded.

use admit_one::operator;

use super::{bar, document, follow, open};
use crate::command::{
    arguments::Verify,
    exit::{Exit, Failure},
    output::{self, Done},
};

pub(super) async fn run(asked: &Verify) -> Result<Done, Failure> {
    let store = open(&asked.store).await?;
    let bar = bar();
    let verified = operator::verify(&*store, follow(&bar)).await;
    bar.finish_and_clear();
    let verified = verified?;
    let paint = output::paint();
    let mut text = String::new();
    for bad in &verified.bad {
        text += &format!("{} {}: {}\n", paint.bad("bad"), bad.record, bad.reason);
    }
    let (exit, verdict) = match verified.bad.len() {
        0 => (Exit::Done, paint.good("every record is good")),
        1 => (Exit::CheckFailed, paint.bad("1 record is bad")),
        count => (Exit::CheckFailed, paint.bad(&format!("{count} records are bad"))),
    };
    text += &format!("{} records read: {verdict}\n", verified.records);
    Ok(Done { exit, json: document(&verified)?, text })
}
