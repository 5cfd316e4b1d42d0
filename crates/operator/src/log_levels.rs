//! How much the operator and its operands log, as the MachineConfiguration says. Whoever embeds the operator owns the log
//! and follows; operands that run in the cluster are told with their pods.

use mco_api::MachineConfiguration;
use mco_api::machine_configuration::LogLevel;

/// What the MachineConfiguration says about logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLevels {
    /// Of the operator itself.
    pub operator: LogLevel,
    /// Of the controller, the daemons and the servers.
    pub operands: LogLevel,
}

impl LogLevels {
    pub fn of(settings: &MachineConfiguration) -> Self {
        Self {
            operator: LogLevel::named(&settings.spec.operator_log_level),
            operands: LogLevel::named(&settings.spec.log_level),
        }
    }

    /// The level of a process that is both.
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
