//! Impersonation: the identity that a caller requests with `Impersonate-*` headers, and the permissions it needs.
//!
//! User, groups, UID and each extra value are authorized separately, as in Kubernetes: permission to impersonate one
//! user must not yield any group.

use http::HeaderMap;

use super::{Identity, RequestAttributes};
use crate::error::ApiError;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// An identity that a caller requests to act as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impersonation {
    user: String,
    groups: Vec<String>,
    uid: Option<String>,
    /// Key and value of each extra field.
    extras: Vec<(String, String)>,
}

impl Impersonation {
    /// Reads the headers; `None` without any of them.
    pub fn requested(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let one = |name: &str| headers.get(name).map(text).transpose();
        let user = one(USER)?;
        let groups: Vec<String> = headers
            .get_all(GROUP)
            .iter()
            .map(text)
            .collect::<Result<_, _>>()?;
        let uid = one(UID)?;
        let mut extras = Vec::new();
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                // Keys with characters that header names do not have are percent-encoded.
                let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy();
                extras.push((key.into_owned(), text(value)?));
            }
        }
        match user {
            Some(user) if !user.is_empty() => Ok(Some(Self {
                user,
                groups,
                uid,
                extras,
            })),
            None if groups.is_empty() && uid.is_none() && extras.is_empty() => Ok(None),
            _ => Err(ApiError::bad_request(
                "impersonation of groups, a UID or extra fields needs the header Impersonate-User",
            )),
        }
    }

    /// Returns everything that the caller must be allowed to impersonate.
    pub fn attributes(&self) -> Vec<RequestAttributes> {
        let of = |group: &str, resource: &str, subresource: &str, name: &str| RequestAttributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..RequestAttributes::default()
        };
        let service_account = self.user.strip_prefix(SERVICE_ACCOUNT);
        let user = match service_account.and_then(|account| account.split_once(':')) {
            Some((namespace, name)) => RequestAttributes {
                namespace: namespace.to_owned(),
                ..of("", "serviceaccounts", "", name)
            },
            None => of("", "users", "", &self.user),
        };
        let groups = self.groups.iter().map(|group| of("", "groups", "", group));
        let uid = self.uid.iter().map(|uid| of(AUTHENTICATION, "uids", "", uid));
        let extras = self
            .extras
            .iter()
            .map(|(key, value)| of(AUTHENTICATION, "userextras", key, value));
        std::iter::once(user)
            .chain(groups)
            .chain(uid)
            .chain(extras)
            .collect()
    }

    /// Returns the impersonated identity.
    pub fn identity(&self, caller: &Identity) -> Identity {
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let mut identity = Identity::new(self.user.clone(), &groups);
        identity.impersonated_by = Some(caller.user.clone());
        identity.uid = self.uid.clone().unwrap_or_default();
        for (key, value) in &self.extras {
            identity.extra.entry(key.clone()).or_default().push(value.clone());
        }
        identity
    }
}

fn text(value: &http::HeaderValue) -> Result<String, ApiError> {
    let text = value.to_str().map(str::to_owned);
    text.map_err(|_| ApiError::bad_request("an Impersonate header is not ASCII text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(headers: &[(&'static str, &'static str)]) -> Result<Option<Impersonation>, ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        Impersonation::requested(&map)
    }

    fn needed(headers: &[(&'static str, &'static str)]) -> Vec<String> {
        let attributes = requested(headers).unwrap().unwrap().attributes();
        let show = |one: RequestAttributes| {
            let parts = [one.group, one.resource, one.subresource, one.namespace, one.name];
            parts
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("/")
        };
        attributes.into_iter().map(show).collect()
    }

    #[test]
    fn impersonating_one_user_yielded_every_group() {
        assert_eq!(
            needed(&[(USER, "bob"), (GROUP, "system:masters"), (GROUP, "dev")]),
            ["users/bob", "groups/system:masters", "groups/dev"]
        );
    }

    #[test]
    fn service_accounts_uids_and_extra_fields_are_authorized_too() {
        assert_eq!(
            needed(&[
                (USER, "system:serviceaccount:kube-system:default"),
                (UID, "u-1"),
                ("impersonate-extra-scopes", "view"),
            ]),
            [
                "serviceaccounts/kube-system/default",
                "authentication.k8s.io/uids/u-1",
                "authentication.k8s.io/userextras/scopes/view"
            ]
        );
    }

    #[test]
    fn a_group_without_a_user_is_an_error_and_not_ignored() {
        assert!(requested(&[(GROUP, "system:masters")]).is_err());
        assert!(requested(&[(USER, ""), (GROUP, "dev")]).is_err());
        assert_eq!(requested(&[]).unwrap(), None);
    }
}
