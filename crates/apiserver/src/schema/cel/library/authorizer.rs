//! `authorizer`: access checks for the caller of a request, in admission policies.

use std::fmt::Debug;
use std::sync::Arc;

use cel::common::types::{CelBool, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::super::budget::CelBudget;
use super::opaque;

/// The cost of one check, so that an expression makes at most about thirty, as in Kubernetes.
const CHECK_COST: u64 = 35_000;

/// The attributes of an access check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAccess {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// Set for a check of a path; all others are empty then.
    pub path: String,
    /// Namespace and name of the service account to check instead of the caller.
    pub service_account: Option<(String, String)>,
}

/// Decides access checks.
pub(crate) trait AccessCheck: Send + Sync + Debug {
    /// Returns whether the access is allowed, and the reason.
    fn check(&self, access: &ResourceAccess) -> (bool, String);
}

/// The variable `authorizer`, and the checks that it builds.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizerValue {
    pub checker: Arc<dyn AccessCheck>,
    pub budget: CelBudget,
    pub service_account: Option<(String, String)>,
}

impl AuthorizerValue {
    /// Returns the variable `authorizer.requestResource`.
    pub fn request_resource(&self, access: ResourceAccess) -> impl cel::common::value::Val + 'static {
        ResourceCheck(Check {
            authorizer: self.clone(),
            access,
        })
    }

    fn access(&self) -> ResourceAccess {
        ResourceAccess {
            service_account: self.service_account.clone(),
            ..ResourceAccess::default()
        }
    }
}

/// A check under construction.
#[derive(Clone, Debug)]
struct Check {
    authorizer: AuthorizerValue,
    access: ResourceAccess,
}

impl Check {
    fn with(&self, change: impl FnOnce(&mut ResourceAccess)) -> Self {
        let mut check = self.clone();
        change(&mut check.access);
        check
    }

    fn decide(&self, verb: &CelString<'_>) -> Result<Decision, ExecutionError> {
        self.authorizer.budget.charge(CHECK_COST)?;
        let access = ResourceAccess {
            verb: verb.inner().to_owned(),
            ..self.access.clone()
        };
        let (allowed, reason) = self.authorizer.checker.check(&access);
        Ok(Decision { allowed, reason })
    }
}

#[derive(Clone, Debug)]
struct PathCheck(Check);
#[derive(Clone, Debug)]
struct GroupCheck(Check);
#[derive(Clone, Debug)]
struct ResourceCheck(Check);
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    allowed: bool,
    reason: String,
}

/// Authorizers have no identity: they are never equal to another value.
macro_rules! never_equal {
    ($($name:ident),*) => {
        $(impl PartialEq for $name {
            fn eq(&self, _other: &Self) -> bool {
                false
            }
        })*
    };
}
never_equal!(AuthorizerValue, PathCheck, GroupCheck, ResourceCheck);

opaque!(AuthorizerValue, "kubernetes.authorization.Authorizer");
opaque!(PathCheck, "kubernetes.authorization.PathCheck");
opaque!(GroupCheck, "kubernetes.authorization.GroupCheck");
opaque!(ResourceCheck, "kubernetes.authorization.ResourceCheck");
opaque!(Decision, "kubernetes.authorization.Decision");

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_member_overload!(env, fn path: (AuthorizerValue, CelString) -> PathCheck)?;
    cel::add_member_overload!(env, fn group: (AuthorizerValue, CelString) -> GroupCheck)?;
    cel::add_member_overload!(env, fn service_account: (AuthorizerValue, CelString, CelString) -> AuthorizerValue)?;
    cel::add_member_overload!(env, fn resource: (GroupCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn subresource: (ResourceCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn namespace: (ResourceCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn name: (ResourceCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn field_selector: (ResourceCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn label_selector: (ResourceCheck, CelString) -> ResourceCheck)?;
    cel::add_member_overload!(env, fn check_path: (PathCheck, CelString) -> Result<Decision>, name = "check")?;
    cel::add_member_overload!(env, fn check_resource: (ResourceCheck, CelString) -> Result<Decision>, name = "check")?;
    cel::add_member_overload!(env, fn allowed: (Decision) -> CelBool)?;
    cel::add_member_overload!(env, fn reason: (Decision) -> CelString)?;
    cel::add_member_overload!(env, fn errored: (Decision) -> CelBool)?;
    cel::add_member_overload!(env, fn error: (Decision) -> CelString)?;
    Ok(())
}

fn path(this: &AuthorizerValue, path: &CelString<'_>) -> PathCheck {
    let access = ResourceAccess {
        path: path.inner().to_owned(),
        ..this.access()
    };
    PathCheck(Check {
        authorizer: this.clone(),
        access,
    })
}

fn group(this: &AuthorizerValue, group: &CelString<'_>) -> GroupCheck {
    let access = ResourceAccess {
        group: group.inner().to_owned(),
        ..this.access()
    };
    GroupCheck(Check {
        authorizer: this.clone(),
        access,
    })
}

fn service_account(
    this: &AuthorizerValue,
    namespace: &CelString<'_>,
    name: &CelString<'_>,
) -> AuthorizerValue {
    AuthorizerValue {
        service_account: Some((namespace.inner().to_owned(), name.inner().to_owned())),
        ..this.clone()
    }
}

fn resource(this: &GroupCheck, resource: &CelString<'_>) -> ResourceCheck {
    ResourceCheck(
        this.0
            .with(|access| resource.inner().clone_into(&mut access.resource)),
    )
}

fn subresource(this: &ResourceCheck, subresource: &CelString<'_>) -> ResourceCheck {
    ResourceCheck(
        this.0
            .with(|access| subresource.inner().clone_into(&mut access.subresource)),
    )
}

fn namespace(this: &ResourceCheck, namespace: &CelString<'_>) -> ResourceCheck {
    ResourceCheck(
        this.0
            .with(|access| namespace.inner().clone_into(&mut access.namespace)),
    )
}

fn name(this: &ResourceCheck, name: &CelString<'_>) -> ResourceCheck {
    ResourceCheck(this.0.with(|access| name.inner().clone_into(&mut access.name)))
}

/// Authorization here does not depend on selectors, as RBAC in Kubernetes.
fn field_selector(this: &ResourceCheck, _selector: &CelString<'_>) -> ResourceCheck {
    this.clone()
}

fn label_selector(this: &ResourceCheck, _selector: &CelString<'_>) -> ResourceCheck {
    this.clone()
}

fn check_path(this: &PathCheck, verb: &CelString<'_>) -> Result<Decision, ExecutionError> {
    this.0.decide(verb)
}

fn check_resource(this: &ResourceCheck, verb: &CelString<'_>) -> Result<Decision, ExecutionError> {
    this.0.decide(verb)
}

fn allowed(this: &Decision) -> CelBool {
    CelBool::from(this.allowed)
}

fn reason(this: &Decision) -> CelString<'static> {
    CelString::from(this.reason.clone())
}

/// Authorization never fails here; it allows or denies.
fn errored(_this: &Decision) -> CelBool {
    CelBool::from(false)
}

fn error(_this: &Decision) -> CelString<'static> {
    CelString::from(String::new())
}
