//! `store clear`: one record removed, after its cost was said and agreed to.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use admit_one::{SystemClock, operator};
use serde_json::json;

use super::{document, open};
use crate::command::{
    arguments::Clear,
    exit::{Exit, Failure},
    output::Done,
};

pub(super) async fn run(asked: &Clear) -> Result<Done, Failure> {
    let store = open(&asked.store).await?;
    let cost = operator::cost_of_clearing(&*store, asked.record).await?;
    if !asked.yes {
        agree(&cost.to_string(), &format!("Clear {}?", asked.record))?;
    }
    let cleared = operator::clear(&store, asked.record, &SystemClock::new()).await?;
    // Who was asked has read it.
    let said = if asked.yes { format!("{cost}\n") } else { String::new() };
    let text = format!("{said}cleared {}\n", asked.record);
    Ok(Done { exit: Exit::Done, json: json!({ "cost": document(&cost)?, "cleared": document(&cleared)? }), text })
}

/// Says what it costs and asks; only the word `yes` agrees. Refuses where nobody is there to answer.
fn agree(cost: &str, question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let message = format!("{cost}\nnobody is there to be asked: look at the cost, then give --yes");
        return Err(Failure::new(Exit::Refused, "no_terminal", message));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{cost}\n{question} Type yes to do it: ")
        .and_then(|()| io::stderr().flush())
        .and_then(|()| io::stdin().lock().read_line(&mut answer));
    match asked {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        Ok(_) => Err(Failure::new(Exit::Refused, "declined", "nothing was changed")),
        Err(error) => Err(Failure::new(Exit::Refused, "declined", format!("nothing was changed: {error}"))),
    }
}
