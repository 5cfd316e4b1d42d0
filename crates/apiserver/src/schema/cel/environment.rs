//! The CEL environment of all rules: the standard library, its extensions, and the libraries of Kubernetes.

use std::sync::{Arc, LazyLock};

use cel::{DeclarationError, Env, extensions};

use super::library;

/// Returns the environment. An error is a bug in this module's tables, which its tests would find.
pub(super) fn environment() -> Result<&'static Arc<Env>, &'static DeclarationError> {
    static ENVIRONMENT: LazyLock<Result<Arc<Env>, DeclarationError>> =
        LazyLock::new(|| build().map(Arc::new));
    ENVIRONMENT.as_ref()
}

fn build() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    env.add_extension(extensions::math)?;
    env.add_extension(extensions::encoders)?;
    env.add_extension(library::metered)?;
    env.add_extension(library::lists)?;
    env.add_extension(library::sets)?;
    env.add_extension(library::regex)?;
    env.add_extension(library::net)?;
    env.add_extension(library::url)?;
    env.add_extension(library::quantity)?;
    env.add_extension(library::semver)?;
    env.add_extension(library::format)?;
    env.add_extension(library::authorizer)?;
    Ok(env)
}
