//! The fields of a KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`), as a table.
//!
//! The file on the node contains every field that the Go type would write, zero or not, so its bytes depend on this
//! table. Fields outside the table are dropped, as a Go program drops them.

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    Text,
    Integer,
    Flag,
    Float,
    /// `1m30s`.
    Duration,
    /// `1m30s` or a number of nanoseconds, written the way it was read.
    DurationOrNanos,
    /// A quantity that the merge never touches (see [`super::tree::merge`]).
    BufferSize,
    Texts,
    Integers,
    TextMap,
    FlagMap,
    TextsMap,
    QuantityMap,
    Struct(&'static [SchemaField]),
    Structs(&'static [SchemaField]),
}

/// When a field is written, and how two values merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KubeletFieldPresence {
    /// Omitted when zero; zero and absent are equivalent.
    Omitted,
    /// Written even when zero.
    Always,
    /// An explicit zero is distinguished from absence.
    Optional,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaField {
    pub name: &'static str,
    pub kind: FieldKind,
    pub presence: KubeletFieldPresence,
}

const fn field(name: &'static str, kind: FieldKind) -> SchemaField {
    SchemaField {
        name,
        kind,
        presence: KubeletFieldPresence::Omitted,
    }
}

const fn always(name: &'static str, kind: FieldKind) -> SchemaField {
    SchemaField {
        name,
        kind,
        presence: KubeletFieldPresence::Always,
    }
}

const fn optional(name: &'static str, kind: FieldKind) -> SchemaField {
    SchemaField {
        name,
        kind,
        presence: KubeletFieldPresence::Optional,
    }
}

use FieldKind::{
    BufferSize, Duration, DurationOrNanos, Flag, FlagMap, Float, Integer, Integers, QuantityMap, Struct,
    Structs, Text, TextMap, Texts, TextsMap,
};

/// The fields of the whole object.
pub(super) const KUBELET_CONFIGURATION: &[SchemaField] = &[
    field("kind", Text),
    field("apiVersion", Text),
    optional("enableServer", Flag),
    field("staticPodPath", Text),
    field("podLogsDir", Text),
    field("syncFrequency", Duration),
    field("fileCheckFrequency", Duration),
    field("httpCheckFrequency", Duration),
    field("staticPodURL", Text),
    field("staticPodURLHeader", TextsMap),
    field("address", Text),
    field("port", Integer),
    field("readOnlyPort", Integer),
    field("tlsCertFile", Text),
    field("tlsPrivateKeyFile", Text),
    field("tlsCipherSuites", Texts),
    field("tlsCurvePreferences", Integers),
    field("tlsMinVersion", Text),
    field("rotateCertificates", Flag),
    field("serverTLSBootstrap", Flag),
    field("authentication", Struct(AUTHENTICATION)),
    field("authorization", Struct(AUTHORIZATION)),
    optional("registryPullQPS", Integer),
    field("registryBurst", Integer),
    field("imagePullCredentialsVerificationPolicy", Text),
    field("preloadedImagesVerificationAllowlist", Texts),
    optional("eventRecordQPS", Integer),
    field("eventBurst", Integer),
    optional("enableDebuggingHandlers", Flag),
    field("enableContentionProfiling", Flag),
    optional("healthzPort", Integer),
    field("healthzBindAddress", Text),
    optional("oomScoreAdj", Integer),
    field("clusterDomain", Text),
    field("clusterDNS", Texts),
    field("streamingConnectionIdleTimeout", Duration),
    field("nodeStatusUpdateFrequency", Duration),
    field("nodeStatusReportFrequency", Duration),
    field("nodeLeaseDurationSeconds", Integer),
    field("imageMinimumGCAge", Duration),
    field("imageMaximumGCAge", Duration),
    optional("imageGCHighThresholdPercent", Integer),
    optional("imageGCLowThresholdPercent", Integer),
    field("volumeStatsAggPeriod", Duration),
    field("kubeletCgroups", Text),
    field("systemCgroups", Text),
    field("cgroupRoot", Text),
    optional("cgroupsPerQOS", Flag),
    field("cgroupDriver", Text),
    field("cpuManagerPolicy", Text),
    optional("singleProcessOOMKill", Flag),
    field("cpuManagerPolicyOptions", TextMap),
    field("cpuManagerReconcilePeriod", Duration),
    field("memoryManagerPolicy", Text),
    field("topologyManagerPolicy", Text),
    field("topologyManagerScope", Text),
    field("topologyManagerPolicyOptions", TextMap),
    field("qosReserved", TextMap),
    field("runtimeRequestTimeout", Duration),
    field("hairpinMode", Text),
    field("maxPods", Integer),
    field("podCIDR", Text),
    optional("podPidsLimit", Integer),
    optional("resolvConf", Text),
    field("runOnce", Flag),
    optional("cpuCFSQuota", Flag),
    optional("cpuCFSQuotaPeriod", Duration),
    optional("nodeStatusMaxImages", Integer),
    field("maxOpenFiles", Integer),
    field("contentType", Text),
    optional("kubeAPIQPS", Integer),
    field("kubeAPIBurst", Integer),
    optional("serializeImagePulls", Flag),
    optional("maxParallelImagePulls", Integer),
    field("evictionHard", TextMap),
    field("evictionSoft", TextMap),
    field("evictionSoftGracePeriod", TextMap),
    field("evictionPressureTransitionPeriod", Duration),
    field("evictionMaxPodGracePeriod", Integer),
    field("evictionMinimumReclaim", TextMap),
    optional("mergeDefaultEvictionSettings", Flag),
    field("podsPerCore", Integer),
    optional("enableControllerAttachDetach", Flag),
    field("protectKernelDefaults", Flag),
    optional("makeIPTablesUtilChains", Flag),
    optional("iptablesMasqueradeBit", Integer),
    optional("iptablesDropBit", Integer),
    field("featureGates", FlagMap),
    optional("failSwapOn", Flag),
    field("memorySwap", Struct(MEMORY_SWAP)),
    field("containerLogMaxSize", Text),
    optional("containerLogMaxFiles", Integer),
    optional("containerLogMaxWorkers", Integer),
    optional("containerLogMonitorInterval", Duration),
    field("configMapAndSecretChangeDetectionStrategy", Text),
    field("systemReserved", TextMap),
    field("kubeReserved", TextMap),
    field("reservedSystemCPUs", Text),
    field("showHiddenMetricsForVersion", Text),
    field("systemReservedCgroup", Text),
    field("kubeReservedCgroup", Text),
    field("enforceNodeAllocatable", Texts),
    field("allowedUnsafeSysctls", Texts),
    field("volumePluginDir", Text),
    field("providerID", Text),
    field("kernelMemcgNotification", Flag),
    field("logging", Struct(LOGGING)),
    optional("enableSystemLogHandler", Flag),
    optional("enableSystemLogQuery", Flag),
    field("shutdownGracePeriod", Duration),
    field("shutdownGracePeriodCriticalPods", Duration),
    field("shutdownGracePeriodByPodPriority", Structs(SHUTDOWN_BY_PRIORITY)),
    field("crashLoopBackOff", Struct(CRASH_LOOP_BACK_OFF)),
    field("reservedMemory", Structs(MEMORY_RESERVATION)),
    optional("enableProfilingHandler", Flag),
    optional("enableDebugFlagsHandler", Flag),
    optional("seccompDefault", Flag),
    optional("memoryThrottlingFactor", Float),
    field("memoryReservationPolicy", Text),
    field("registerWithTaints", Structs(TAINT)),
    optional("registerNode", Flag),
    optional("tracing", Struct(TRACING)),
    optional("localStorageCapacityIsolation", Flag),
    always("containerRuntimeEndpoint", Text),
    field("imageServiceEndpoint", Text),
    optional("failCgroupV1", Flag),
    optional("userNamespaces", Struct(USER_NAMESPACES)),
];

const AUTHENTICATION: &[SchemaField] = &[
    field("x509", Struct(&[field("clientCAFile", Text)])),
    field(
        "webhook",
        Struct(&[optional("enabled", Flag), field("cacheTTL", Duration)]),
    ),
    field("anonymous", Struct(&[optional("enabled", Flag)])),
];

const AUTHORIZATION: &[SchemaField] = &[
    field("mode", Text),
    field(
        "webhook",
        Struct(&[
            field("cacheAuthorizedTTL", Duration),
            field("cacheUnauthorizedTTL", Duration),
        ]),
    ),
];

const MEMORY_SWAP: &[SchemaField] = &[field("swapBehavior", Text)];

const LOGGING: &[SchemaField] = &[
    field("format", Text),
    always("flushFrequency", DurationOrNanos),
    always("verbosity", Integer),
    field(
        "vmodule",
        Structs(&[always("filePattern", Text), always("verbosity", Integer)]),
    ),
    field(
        "options",
        Struct(&[
            field("text", Struct(OUTPUT_ROUTING)),
            field("json", Struct(OUTPUT_ROUTING)),
        ]),
    ),
];

const OUTPUT_ROUTING: &[SchemaField] = &[field("splitStream", Flag), field("infoBufferSize", BufferSize)];

const SHUTDOWN_BY_PRIORITY: &[SchemaField] = &[
    always("priority", Integer),
    always("shutdownGracePeriodSeconds", Integer),
];

const CRASH_LOOP_BACK_OFF: &[SchemaField] = &[optional("maxContainerRestartPeriod", Duration)];

const MEMORY_RESERVATION: &[SchemaField] = &[always("numaNode", Integer), always("limits", QuantityMap)];

const TAINT: &[SchemaField] = &[
    always("key", Text),
    field("value", Text),
    always("effect", Text),
    optional("timeAdded", Text),
];

const TRACING: &[SchemaField] = &[
    optional("endpoint", Text),
    optional("samplingRatePerMillion", Integer),
];

const USER_NAMESPACES: &[SchemaField] = &[optional("idsPerPod", Integer)];
