//! `store renew`: a new birth and new incarnations, after a restore from a backup.

use admit_one::{SystemClock, operator};

use super::{document, open};
use crate::command::{
    arguments::Renew,
    exit::{Exit, Failure},
    output::Done,
};

pub(super) async fn run(asked: &Renew) -> Result<Done, Failure> {
    let store = open(&asked.store).await?;
    let renewed = operator::renew(&store, &SystemClock::new()).await?;
    Ok(Done { exit: Exit::Done, json: document(&renewed)?, text: format!("{renewed}\n") })
}
