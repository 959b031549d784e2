//! Creates HookRuns from a template, its arguments, and an identity that records what each run is for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::names::{self, HookPoint};
use crate::api::{Argument, HookRun, HookRunSpec, HookStep, HookTemplate, Reason};
use crate::hook_run;
use crate::observed::{Pod, RevisionName};
use crate::workload::decision::Blocked;
use crate::workload::hooks::Target;
use crate::workload::hooks::template_order::TemplateOrder;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// What a run is for.
pub(crate) enum Subject<'a> {
    /// A canary step.
    Step {
        /// The update revision.
        revision: RevisionName<'a>,
        /// The step's index.
        index: i32,
    },
    /// A pod.
    Pod {
        /// The pod.
        pod: &'a Pod,
        /// What the guarded action leads to.
        target: Target<'a>,
        /// Containers whose image changes.
        modified: &'a [String],
        /// Containers that the guarded action changes in place, for the annotation; None if it changes none in place.
        changes: Option<&'a str>,
    },
}

/// Why a run cannot be created until a user fixes the template or the arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum CannotMake {
    /// There is no such template.
    #[error("HookTemplate {0:?} does not exist in this namespace; create it, or name another one")]
    NoTemplate(String),
    /// The template was stored with a value that this version does not know.
    #[error(
        "HookTemplate {0:?} cannot be decoded by this operator, and its events say why; fix it, or name another one"
    )]
    Unreadable(String),
    /// Arguments have no value.
    #[error("HookTemplate {template:?} needs a value for {names}; add it to the hook's args")]
    NoValue {
        /// The template.
        template: String,
        /// The arguments.
        names: String,
    },
    /// Runs of the template can never end Successful.
    #[error("HookTemplate {template:?} can never end Successful: {why}")]
    CannotSucceed {
        /// The template.
        template: String,
        /// Why.
        why: String,
    },
}

impl CannotMake {
    /// How this blocks a workload.
    pub fn blocked(&self) -> Blocked {
        let reason = match self {
            CannotMake::NoTemplate(_) => Reason::HookTemplateNotFound,
            CannotMake::Unreadable(_) => Reason::HookTemplateUnreadable,
            CannotMake::NoValue { .. } => Reason::HookArgumentMissing,
            CannotMake::CannotSucceed { .. } => Reason::HookCannotSucceed,
        };
        Blocked { reason, message: self.to_string() }
    }
}

/// Hash of a hook's template name and arguments: part of a run's identity.
pub(crate) fn hook_hash(hook: &HookStep) -> String {
    names::safe_hash(&serde_json::to_vec(hook).unwrap_or_default())
}

/// Name of the run of a canary step.
pub(crate) fn step_run_name(hook: &HookStep, revision: RevisionName, index: i32) -> String {
    HookPoint::Step.run_name(revision.as_str(), &index.to_string(), &hook.template_name)
}

/// Name of the run of a pod's hook.
pub(crate) fn pod_run_name(hook: &HookStep, point: HookPoint, pod: &Pod, target: Target) -> String {
    let revision = revision_in_name(point, pod, target);
    point.run_name(revision.as_str(), pod.instance(), &hook.template_name)
}

/// The revision that a pod's run is named after.
fn revision_in_name<'a>(point: HookPoint, pod: &'a Pod, target: Target<'a>) -> RevisionName<'a> {
    match (point, target) {
        (HookPoint::PostInplace, Target::Revision(target)) => target,
        _ => pod.revision(),
    }
}

/// Creates the runs of one hook. What they have in common is looked up and checked once.
pub(crate) struct HookMaker<'a> {
    workload: &'a Workload<'a>,
    point: HookPoint,
    hook: &'a HookStep,
    /// The hook's hash.
    hash: String,
    template: &'a HookTemplate,
    /// The length of a run, in bytes of JSON.
    pub run_bytes: usize,
    containers: TemplateOrder<'a>,
}

impl<'a> HookMaker<'a> {
    /// A maker for the hook of a point.
    ///
    /// # Errors
    /// If its template does not exist, cannot be decoded, or can never end Successful.
    pub(crate) fn new(
        workload: &'a Workload<'a>,
        world: &'a World,
        point: HookPoint,
        hook: &'a HookStep,
    ) -> Result<Self, CannotMake> {
        let template = usable_template(workload, world, hook)?;
        let lengths = [serde_json::to_vec(&template.spec), serde_json::to_vec(hook)];
        let run_bytes = lengths.into_iter().flatten().map(|it| it.len()).sum();
        let containers = TemplateOrder::new(workload, world);
        Ok(Self { workload, point, hook, hash: hook_hash(hook), template, run_bytes, containers })
    }

    /// The name of the run for a subject.
    pub(crate) fn name(&self, subject: &Subject) -> String {
        match subject {
            Subject::Step { revision, index } => step_run_name(self.hook, *revision, *index),
            Subject::Pod { pod, target, .. } => pod_run_name(self.hook, self.point, pod, *target),
        }
    }

    /// The run for a subject.
    ///
    /// # Errors
    /// If an argument has no value.
    pub(crate) fn make(&self, subject: &Subject) -> Result<HookRun, CannotMake> {
        let Self { workload, hook, template, .. } = self;
        let args = arguments(template, hook, self.given_by_operator(subject))?;
        let metadata = ObjectMeta {
            name: Some(self.name(subject)),
            namespace: Some(workload.namespace.clone()),
            labels: Some(self.labels(subject)),
            annotations: Some(self.identity(subject)),
            owner_references: Some(vec![workload.owner_of_runs()]),
            ..ObjectMeta::default()
        };
        let spec = HookRunSpec {
            metrics: template.spec.metrics.clone(),
            args,
            policy: template.spec.policy,
            dry_run: template.spec.dry_run.clone(),
            measurement_retention: template.spec.measurement_retention.clone(),
            ..HookRunSpec::default()
        };
        Ok(HookRun { metadata, spec, status: None })
    }

    fn labels(&self, subject: &Subject) -> BTreeMap<String, String> {
        let kind = self.workload.kind;
        let (revision, specific) = match subject {
            Subject::Step { revision, index } => {
                let index = index.to_string();
                let specific = [
                    (kind.revision_label(), revision.to_string()),
                    (names::RUN_STEP_LABEL, index.clone()),
                    (names::RUN_STEP_INDEX_LABEL, index),
                ];
                (*revision, specific)
            }
            Subject::Pod { pod, target, .. } => {
                let revision = revision_in_name(self.point, pod, *target);
                let instance = pod.instance().to_owned();
                let specific = [
                    (names::RUN_POD_REVISION_LABEL, revision.to_string()),
                    (names::RUN_INSTANCE_LABEL, instance.clone()),
                    (names::RUN_INSTANCE_ID_LABEL, instance),
                ];
                (revision, specific)
            }
        };
        let common = [
            (kind.type_label(), self.point.as_str().to_owned()),
            (names::RUN_TYPE_LABEL, self.point.type_value().to_owned()),
            (names::RUN_WORKLOAD_REVISION_LABEL, revision.to_string()),
        ];
        let labels = specific.into_iter().chain(common);
        labels.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn identity(&self, subject: &Subject) -> BTreeMap<String, String> {
        let Workload { uid, generation, .. } = self.workload;
        let mut annotations = BTreeMap::from([
            (names::RUN_WORKLOAD_UID.to_owned(), uid.clone()),
            (names::RUN_HOOK_HASH.to_owned(), self.hash.clone()),
            (names::RUN_GENERATION.to_owned(), generation.to_string()),
        ]);
        if let Subject::Pod { pod, target, changes, .. } = subject {
            let changes = changes.map(|it| (names::RUN_CHANGES.to_owned(), it.to_owned()));
            annotations.extend(changes);
            annotations.insert(names::RUN_POD_UID.to_owned(), pod.uid.clone());
            annotations.insert(names::RUN_TARGET.to_owned(), target.annotation().to_owned());
        }
        annotations
    }

    /// Arguments that the operator passes to a run.
    fn given_by_operator(&self, subject: &Subject) -> Vec<(String, String)> {
        let Subject::Pod { pod, modified, .. } = subject else {
            return Vec::new();
        };
        let mut given = vec![
            ("PodName".to_owned(), pod.name.clone()),
            ("PodNamespace".to_owned(), self.workload.namespace.clone()),
        ];
        given.extend(pod.pod_ip.iter().map(|ip| ("PodIP".to_owned(), ip.clone())));
        given.extend(pod.host_ip.iter().map(|ip| ("HostIP".to_owned(), ip.clone())));
        let containers = self.containers.of(pod).into_iter().enumerate();
        given.extend(containers.map(|(i, it)| (format!("PodContainer[{i}]"), it.name.clone())));
        let modified = modified.iter().enumerate();
        given.extend(modified.map(|(i, name)| (format!("ModifiedContainer[{i}]"), name.clone())));
        given
    }
}

/// The template of a hook.
fn usable_template<'a>(
    workload: &'a Workload,
    world: &'a World,
    hook: &HookStep,
) -> Result<&'a HookTemplate, CannotMake> {
    let name = &hook.template_name;
    let stored = world.templates.get(name).map(AsRef::as_ref);
    let template = stored.or_else(|| kept_template(workload, name));
    let template = template.ok_or_else(|| match world.unreadable_templates.contains(name) {
        true => CannotMake::Unreadable(name.clone()),
        false => CannotMake::NoTemplate(name.clone()),
    })?;
    hook_run::check_can_succeed(&template.spec)
        .map_err(|why| CannotMake::CannotSucceed { template: name.clone(), why })?;
    Ok(template)
}

/// Whether the hook of a point could run, before it is needed.
///
/// # Errors
/// If it could not.
pub(crate) fn check(
    workload: &Workload,
    world: &World,
    point: HookPoint,
    hook: &HookStep,
) -> Result<(), CannotMake> {
    let template = usable_template(workload, world, hook)?;
    let given = hook.args.iter().map(|arg| Argument {
        name: arg.name.clone(),
        value: Some(arg.value.clone()),
        value_from: None,
    });
    let given: Vec<Argument> = given.collect();
    let is_of_pods = point != HookPoint::Step;
    let is_given = |name: &String| {
        is_of_pods && OPERATOR_ARGUMENTS.iter().any(|argument| name.starts_with(argument))
    };
    let mut missing = hook_run::missing_arguments(&template.spec, &given);
    missing.retain(|name| !is_given(name));
    match missing.is_empty() {
        true => Ok(()),
        false => Err(no_value(hook, missing)),
    }
}

fn no_value(hook: &HookStep, mut missing: Vec<String>) -> CannotMake {
    missing.truncate(MAX_NAMED);
    CannotMake::NoValue { template: hook.template_name.clone(), names: missing.join(", ") }
}

/// The workload's copy of a template that was deleted before the workload itself. `kubectl delete -f FOLDER` can
/// delete them in this order.
fn kept_template<'a>(workload: &'a Workload, name: &str) -> Option<&'a HookTemplate> {
    let (kept_name, template) = workload.guard_marks.kept_template.as_ref()?;
    (kept_name == name).then_some(template)
}

/// Names of the arguments that the operator passes to pod hooks; those that end in `[` are lists of containers.
pub const OPERATOR_ARGUMENTS: [&str; 6] =
    ["PodName", "PodNamespace", "PodIP", "HostIP", "PodContainer[", "ModifiedContainer["];

/// The maximum number of missing arguments that a message lists.
const MAX_NAMED: usize = 16;

/// The run's arguments. The user's value takes precedence over the operator's, and the operator's over the
/// template's.
fn arguments(
    template: &HookTemplate,
    hook: &HookStep,
    operator_args: Vec<(String, String)>,
) -> Result<Vec<Argument>, CannotMake> {
    let user_args = hook.args.iter().map(|arg| (arg.name.clone(), arg.value.clone()));
    let mut given: Vec<Argument> = Vec::new();
    for (name, value) in user_args.chain(operator_args) {
        if !given.iter().any(|arg| arg.name == name) {
            given.push(Argument { name, value: Some(value), value_from: None });
        }
    }
    match hook_run::missing_arguments(&template.spec, &given) {
        missing if missing.is_empty() => Ok(hook_run::run_arguments(&template.spec, &given)),
        missing => Err(no_value(hook, missing)),
    }
}
