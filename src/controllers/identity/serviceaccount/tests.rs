//! The plan's table.

use super::plan::plan;
use super::view::View;
use crate::api::core::ServiceAccount;
use crate::model::plan::{Step, Verb};
use crate::wire::Message;

fn view(active: bool, has_account: bool) -> View {
    View { namespace: "team".into(), active, has_account }
}

#[test]
fn only_an_active_namespace_without_the_account_gets_one() {
    assert!(plan(&view(true, true)).is_empty());
    assert!(plan(&view(false, false)).is_empty());
    let plan = plan(&view(true, false));
    let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(write.to_string(), "create serviceaccounts team/default");
    let Verb::Create(object) = &write.verb else { panic!("{write}") };
    let account = ServiceAccount::decode(object).unwrap();
    assert_eq!((account.metadata.name.as_str(), account.metadata.namespace.as_str()), ("default", "team"));
    assert!(write.tolerate.namespace_terminating && write.tolerate.exists && write.tolerate.absent);
}
