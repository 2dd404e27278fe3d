//! The guards against a second dispatch, by name, so that a test can take one away and show what it is for.

/// One guard. Outside tests every guard is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Guard {
    /// A stream whose record is in the unrestorable set refuses everything (law L11.2).
    Unavailable,
    /// A time to live over the greatest accepted is refused (law L2.4).
    TtlBound,
    /// What expired is refused (law L2.4).
    Expired,
    /// What was issued more than the tolerance ahead is refused (law L2.4).
    FromTheFuture,
    /// What was issued at or before the birth mark is refused (law L9.9).
    BirthMark,
    /// What was issued at or before a cleared stream's mark is refused (law L11.5).
    ClearedMark,
    /// Birth is raised to wall − age until it settles (law L9.9).
    BirthRaise,
    /// A reading counts for birth even where the request that it was made for is refused.
    RefusedReading,
    /// A new boot before birth settles takes it anew (law L9.9).
    NewBoot,
    /// A greatest ttl raised over what birth settled under takes it anew (law L9.9).
    TtlRaise,
    /// Marks use the greatest tolerance that the store ever ran with.
    GreatestSigma,
    /// A mark starts from no less than the greatest instant of an admission.
    GreatestAdmitted,
    /// What expires at or below its class's floor is refused (law L10.5).
    Floor,
    /// A raised floor is staged with the removal that raises it (law L9.2, Atomicity).
    FloorStaged,
    /// A stream waits in monotonic time before it may be removed (law L10.5).
    RemovalWait,
    /// Only a spent stream is removed (law L10.5).
    Spent,
    /// A stream is spent only the tolerance after its greatest expiry (law L10.5).
    SpentTolerance,
    /// An incarnation more than the tolerance ahead is refused (law L8.4).
    IncarnationAhead,
    /// The window judges (law L5.3).
    Window,
    /// Only a registered namespace has volatile windows (law L6.1).
    Registered,
    /// A link-local transaction was issued after its namespace's registration mark (law L6.4).
    RegistrationMark,
    /// What was issued at or before a namespace's mark is refused (law L6.4).
    WithdrawalMark,
    /// A withdrawal's mark survives a registration (law L6.4).
    MarkSurvives,
    /// A mark is no less than what may have been admitted link-locally, in earlier runs too (law L6.4).
    Horizon,
    /// A moved horizon is staged with the admission that moves it (law L6.4).
    HorizonStaged,
    /// A start without a registered namespace withdraws it (law L6.4).
    StartWithout,
    /// A start with another classifier sets the mark of all namespaces (law L6.4).
    ClassifierMark,
    /// What a namespace's mark refuses is not handed over either, though it was admitted (law L6.4).
    HandOver,
    /// A link's volatile window judges (law L6.2).
    LocalWindow,
    /// Mail was held before it expired (law L2.4).
    HeldInLife,
    /// Mail was held for no longer than it may be (law L2.4).
    HeldTooLong,
    /// A stream that mail may come for is spent only once none can live (law L10.5).
    MailOutlives,
    /// Birth settles, with custody, only once no mail of before lives, and is taken anew where it did not (law L9.9).
    MailBirth,
    /// Mail in custody is redelivered only where its window knows it (law L10.6).
    CustodyWindow,
    /// What is admitted by another way is in custody no more (law L10.6).
    CustodyLeft,
    /// Mail that is pending is not redelivered (law L10.6).
    Pending,
    /// Taking removes mail from custody durably (law L10.6).
    TakeStaged,
}

/// Which guard a test took away. Empty outside tests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guards {
    #[cfg(test)]
    pub(crate) without: Option<Guard>,
}

impl Guards {
    /// Whether `guard` is there.
    #[cfg(test)]
    pub(crate) fn keep(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// Whether `guard` is there: always.
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) const fn keep(self, _: Guard) -> bool {
        true
    }
}
