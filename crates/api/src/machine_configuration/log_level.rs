//! Log levels of the MachineConfiguration.

/// The log level of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    #[default]
    Normal,
    Debug,
    Trace,
    TraceAll,
}

impl LogLevel {
    /// Parses a level. An empty or unknown name is the normal one, as documented in the API.
    pub fn named(name: &str) -> Self {
        match name {
            "Debug" => Self::Debug,
            "Trace" => Self::Trace,
            "TraceAll" => Self::TraceAll,
            _ => Self::Normal,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Debug => "Debug",
            Self::Trace => "Trace",
            Self::TraceAll => "TraceAll",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_unknown_names_are_normal() {
        for level in [
            LogLevel::Normal,
            LogLevel::Debug,
            LogLevel::Trace,
            LogLevel::TraceAll,
        ] {
            assert_eq!(LogLevel::named(level.name()), level);
        }
        for name in ["", "debug", "Loud"] {
            assert_eq!(LogLevel::named(name), LogLevel::Normal, "{name:?}");
        }
        assert!(LogLevel::Normal < LogLevel::Debug && LogLevel::Trace < LogLevel::TraceAll);
    }
}
