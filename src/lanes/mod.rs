//! Out: four class lanes, each pinned to an ordered channel, under credit.
