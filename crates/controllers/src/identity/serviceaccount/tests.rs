//! The plan's table.

use std::sync::Arc;

use coxswain_machinery::api::core::{Namespace, ServiceAccount};
use coxswain_machinery::api::kinds::{NAMESPACES, SERVICE_ACCOUNTS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Step, Verb};
use coxswain_machinery::options::Config;
use coxswain_machinery::wire::Message;
use jiff::Timestamp;

use super::DESCRIPTOR;
use super::plan::plan;
use super::view::View;

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

#[test]
fn a_room_settles_on_what_is_there() {
    let rig = Rig::new(Config::default());
    let metadata = ObjectMeta { name: "team".into(), uid: "1".into(), ..ObjectMeta::default() };
    let mut namespace = Namespace { metadata, ..Namespace::default() };
    namespace.status.phase = "Active".into();
    rig.add(&NAMESPACES, &namespace).unwrap();
    let built = rig.build(DESCRIPTOR.build.unwrap()).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    let key = Key::new("", "team");
    assert_eq!(rig.settle(work.reconcile.as_ref(), &key, Timestamp::UNIX_EPOCH).unwrap(), 1);
    let accounts: Vec<Arc<ServiceAccount>> = Lister::new(rig.store(&SERVICE_ACCOUNTS)).list();
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].metadata.name, "default");
    assert_eq!(accounts[0].metadata.uid, "default-uid");
    assert_eq!(rig.settle(work.reconcile.as_ref(), &key, Timestamp::UNIX_EPOCH).unwrap(), 0);
}
