//! The template functions in addition to those of the language.

use std::sync::Arc;

use gotmpl::{FuncMap, TemplateError, Value};

use super::data::text;
use super::platform::{TemplateLoadBalancer, TemplatePlatform};

type FunctionOutcome = Result<Value, TemplateError>;

/// Returns all functions, bound to one cluster's platform.
pub(super) fn all(platform: &TemplatePlatform) -> FuncMap {
    let mut functions = FuncMap::new();
    let mut add = |name: &str, function: fn(&[Value]) -> FunctionOutcome| {
        functions.insert(name.to_owned(), Arc::new(function));
    };
    add("toString", |args| {
        Ok(text(&take::<1>("toString", args)?[0].to_string()))
    });
    add("indent", indent);
    add("join", join);
    add("skip", skip);
    add("urlHost", |args| {
        TemplateUrl::parse(&take::<1>("urlHost", args)?[0].to_string()).map(|url| text(&url.host))
    });
    add("urlPort", |args| {
        TemplateUrl::parse(&take::<1>("urlPort", args)?[0].to_string())?.port()
    });

    let platform = Arc::new(platform.clone());
    let mut ask = |name: &'static str, answer: fn(&TemplatePlatform) -> Result<Value, String>| {
        let platform = Arc::clone(&platform);
        let function = move |args: &[Value]| {
            take::<1>(name, args)?;
            answer(&platform).map_err(|message| failed(name, &message))
        };
        functions.insert(name.to_owned(), Arc::new(function));
    };
    ask("platformType", |p| Ok(text(p.type_name())));
    ask("cloudProvider", |p| Ok(text(p.cloud_provider())));
    ask("credentialProviderConfigFlag", |p| {
        Ok(text(&p.credential_provider_flags()))
    });
    ask("onPremPlatformShortName", |p| {
        Ok(text(p.on_premises_short_name()))
    });
    ask("onPremPlatformAPIServerInternalIP", |p| {
        let first = p.first_address(p.api_server_addresses()?)?;
        Ok(first.map_or(Value::Nil, text))
    });
    ask("onPremPlatformAPIServerInternalIPs", |p| {
        p.api_server_addresses().map(list)
    });
    ask("onPremPlatformIngressIP", |p| {
        let first = p.first_address(p.ingress_addresses()?)?;
        Ok(first.map_or(Value::Nil, text))
    });
    ask("onPremPlatformIngressIPs", |p| p.ingress_addresses().map(list));
    ask("isOpenShiftManagedDefaultLB", |p| {
        Ok(Value::Bool(p.manages_load_balancer()))
    });
    ask("dnsRecordsType", |p| Ok(text(p.dns_records_type())));
    ask("cloudPlatformAPIIntLoadBalancerIPs", |p| {
        p.load_balancer_addresses(TemplateLoadBalancer::InternalApi)
            .map(|all| list(&all))
    });
    ask("cloudPlatformAPILoadBalancerIPs", |p| {
        p.load_balancer_addresses(TemplateLoadBalancer::Api)
            .map(|all| list(&all))
    });
    ask("cloudPlatformIngressLoadBalancerIPs", |p| {
        p.load_balancer_addresses(TemplateLoadBalancer::Ingress)
            .map(|all| list(&all))
    });
    functions
}

fn take<'a, const N: usize>(name: &str, args: &'a [Value]) -> Result<&'a [Value; N], TemplateError> {
    args.try_into()
        .map_err(|_| failed(name, &format!("wants {N} arguments, got {}", args.len())))
}

fn failed(name: &str, message: &str) -> TemplateError {
    TemplateError::Exec(format!("{name}: {message}"))
}

fn list(items: &[String]) -> Value {
    Value::List(items.iter().map(|item| text(item)).collect())
}

/// `indent 4 "text"`: indents every line of the text.
fn indent(args: &[Value]) -> FunctionOutcome {
    let [width, content] = take::<2>("indent", args)?;
    let width = width.as_int().and_then(|width| usize::try_from(width).ok());
    let pad = " ".repeat(width.ok_or_else(|| failed("indent", "the width must be a whole number"))?);
    Ok(text(&format!(
        "{pad}{}",
        content.to_string().replace('\n', &format!("\n{pad}"))
    )))
}

/// `join list ", "`: joins a list with a separator.
fn join(args: &[Value]) -> FunctionOutcome {
    let [items, separator] = take::<2>("join", args)?;
    match items {
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            Ok(text(&items.join(&separator.to_string())))
        }
        Value::Nil => Ok(text("")),
        _ => Err(failed("join", "the first argument must be a list")),
    }
}

/// `skip "key"`: leaves `{{.key}}` in the output for a later substitution.
fn skip(args: &[Value]) -> FunctionOutcome {
    let [key] = take::<1>("skip", args)?;
    let key = key.to_string();
    let mut bytes = key.bytes();
    let starts_well = bytes.next().is_some_and(|b| b == b'_' || b.is_ascii_lowercase());
    if starts_well && bytes.all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
        Ok(text(&format!("{{{{.{key}}}}}")))
    } else {
        Err(failed(
            "skip",
            &format!("{key:?} is not a name that can be substituted later"),
        ))
    }
}

struct TemplateUrl {
    scheme: String,
    host: String,
    port: String,
}

impl TemplateUrl {
    fn parse(url: &str) -> Result<Self, TemplateError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| TemplateError::Exec(format!("{url:?} is not a URL")))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match host_and_port
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or_default()),
            None => host_and_port.rsplit_once(':').unwrap_or((host_and_port, "")),
        };
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            port: port.to_owned(),
        })
    }

    fn port(&self) -> FunctionOutcome {
        match (self.port.as_str(), self.scheme.as_str()) {
            ("", "https") => Ok(text("443")),
            ("", "http") => Ok(text("80")),
            ("", scheme) => Err(failed(
                "urlPort",
                &format!("unknown scheme {scheme:?} and no port"),
            )),
            (port, _) => Ok(text(port)),
        }
    }
}
