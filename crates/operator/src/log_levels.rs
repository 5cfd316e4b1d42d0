//! Log levels of the operator and its operands, from the MachineConfiguration. The embedding program owns the log and
//! follows them; operands in the cluster get theirs as an environment variable.

use mco_api::MachineConfiguration;
use mco_api::machine_configuration::LogLevel;

/// The log levels in the MachineConfiguration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLevels {
    /// The level of the operator itself.
    pub operator: LogLevel,
    /// The level of the controller, the daemons and the servers.
    pub operands: LogLevel,
}

impl LogLevels {
    pub fn of(settings: &MachineConfiguration) -> Self {
        Self {
            operator: LogLevel::named(&settings.spec.operator_log_level),
            operands: LogLevel::named(&settings.spec.log_level),
        }
    }

    /// Returns the level of a process that is both.
    pub fn louder(self) -> LogLevel {
        self.operator.max(self.operands)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_operator_and_its_operands_have_levels_of_their_own() {
        let levels = |spec: serde_json::Value| {
            let object = json!({"metadata": {"name": "cluster"}, "spec": spec});
            LogLevels::of(&serde_json::from_value(object).unwrap())
        };
        let expected = |operator, operands| LogLevels { operator, operands };
        for (spec, expected, louder) in [
            (json!({}), LogLevels::default(), LogLevel::Normal),
            (
                json!({"operatorLogLevel": "Debug", "logLevel": "TraceAll"}),
                expected(LogLevel::Debug, LogLevel::TraceAll),
                LogLevel::TraceAll,
            ),
            (
                json!({"operatorLogLevel": "Trace", "logLevel": "Normal"}),
                expected(LogLevel::Trace, LogLevel::Normal),
                LogLevel::Trace,
            ),
        ] {
            assert_eq!(levels(spec.clone()), expected, "{spec}");
            assert_eq!(levels(spec).louder(), louder);
        }
    }
}
