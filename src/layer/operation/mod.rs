//! Operations (law L12.4): what was asked for once runs once, and whoever asks for it again gets its outcome.
//!
//! [`OperationLayer`] takes what [`NonceLayer`](crate::layer::nonce::NonceLayer), and
//! [`ApprovalLayer`](crate::layer::approval::ApprovalLayer) behind it, checked, and calls a
//! `Service<Permitted<R>, Response = Outcome>`. It answers an [`Answer`]. All marks and the operation are reserved, begun
//! and finished together: three transitions, and no flush but the store's own.
//!
//! | the operation is | exact retry | another call under its identity |
//! | --- | --- | --- |
//! | absent | runs | runs |
//! | reserved | continues: the newest caller owns it and its marks, and an earlier one waits for it | `conflict` |
//! | dispatching, in this process | waits for it, and gets the same outcome | `conflict` |
//! | dispatching, of an earlier run | `outcome_unknown` until its deadline | `conflict` |
//! | finished | its outcome, byte for byte; nothing runs and nothing more is consumed | `conflict` |
//! | past its deadline | `deadline_passed` | `deadline_passed` |
//!
//! | step | durable before the next | what a failure does |
//! | --- | --- | --- |
//! | 1 operation and marks are reserved | reserved | refused; nothing is reserved |
//! | 2 the handler is made ready | | [`NotReady`](crate::layer::credential::CallError::NotReady), and rolled back |
//! | 3 the call begins | dispatching | refused: by stop, revocation or expiry, as read under the lock; rolled back |
//! | 4 the handler runs | | [`Handler`](crate::layer::credential::CallError::Handler); never recorded as an outcome, which is unknown from then on |
//! | 5 the outcome is recorded | finished | [`OutcomeUnknown`](crate::layer::credential::CallError::OutcomeUnknown), with the answer withheld |
//! | 6 stop and revocation are read, last | | refused; the outcome stays recorded for a retry under live authority |
//!
//! So what a handler refuses without any effect is best refused in front of this layer, by a layer on [`Presented`]:
//! nothing is consumed there.
//!
//! A caller that goes away before 3 gives back what it reserved; from then on the outcome is unknown, unless the layer is
//! [`detached`](OperationLayer::detached), where the handler runs to its end whoever waits.
//!
//! [`Presented`]: crate::layer::credential::Presented

mod answer;
mod layer;
mod service;

pub use answer::Answer;
pub use layer::OperationLayer;
pub use service::OperationService;
