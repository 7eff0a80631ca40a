//! placeholder
use crate::{
    inventory::Inventory,
    plan::{ExecPlan, Plan},
    record::Record,
    situation::Situation,
};
/// x
pub fn refusal(plan: &Plan, _: &Situation, _: &Inventory) -> String {
    plan.findings.iter().filter(|f| f.severity == crate::finding::Severity::Error).map(|f| f.message.clone()).collect()
}
/// x
pub fn exec_refusal(plan: &ExecPlan, _: &Record, _: &Inventory) -> String {
    plan.findings.iter().map(|f| f.message.clone()).collect()
}
