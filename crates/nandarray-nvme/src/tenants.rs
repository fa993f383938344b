//! Tenants: who hosts belong to, and what each of them may see, change, run and take.
//!
//! The rules come from a TOML text ([`NodeRules::parse`]); every key is declared once, in [`TenantRules`] and
//! [`NodeLimits`]. Without a text every host is a tenant of its own with [`TenantRules::of_host`]. A [`Tenant`] is a
//! tenant's state in a server: its programs, local memory, budget and pace, which its associations share.
//!
//! Rules can be replaced while hosts are connected: limits and arrays change for the next command; a host that has
//! become another tenant's, or none's, has to connect again. Not here: secrets, and the workers that tenants share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nandarray::nvme::ArrayAccess;
use nandarray_describe::{Invalid, LineNumbers, Problem, table};
use parking_lot::{Mutex, RwLock};
use wildmatch::WildMatchPattern;

use crate::budget::Budget;
use crate::host_entries::{entry_of, fault};
use crate::logs::ErrorLog;
use crate::metrics::{DISCOVERY_TENANT, OTHER_TENANTS};
use crate::programs::Programs;
use crate::running::RUN_INSTRUCTIONS_MAX;
use crate::slm::LocalMemory;

/// Maximum number of tenants that a text names.
const TENANTS_MAX: usize = 1024;
/// Maximum number of tenants without rules and without an association that keep their programs and local memory.
const IDLE_MAX: usize = 16;
/// Memory that such a tenant keeps for longer than [`IDLE_TIME`] after its last association, in bytes.
const IDLE_BYTES_MAX: u64 = 4 << 20;
const IDLE_TIME: Duration = Duration::from_secs(4);
/// Unit of sizes in the text, in bytes.
const MIB: u64 = 1 << 20;

table! {
    /// The limits of a node as a whole.
    #[derive(Eq)]
    pub struct NodeLimits {
        memory_mib in 128..=1_048_576 "MiB": u64, "memory for all that hosts make grow", default by "node_memory_mib";
        spool_mib in 64..=1_073_741_824 "MiB": u64, "disk for outputs of runs", default by "node_spool_mib";
    }
}

table! {
    /// The rules of one tenant.
    #[derive(Eq)]
    pub struct TenantRules {
        hosts: Vec<String>, "qualified names of its hosts; `*` at the end stands for any characters";
        read: Vec<String>, "names of arrays that it may read; `*` stands for any characters", default;
        write: Vec<String>, "names of arrays that it may also make, change and delete", default;
        programs: bool, "whether it may load and run programs", default;
        slots in 1..=64 "programs": u32, "programs that it may have loaded by slots", default by "slots";
        local_memory_mib in 0..=4_096 "MiB": u64, "its Subsystem Local Memory", default by "local_memory_mib";
        memory_mib in 64..=1_048_576 "MiB": u64, "its part of the node's memory at most", default by "memory_mib";
        spool_mib in 0..=1_073_741_824 "MiB": u64, "disk for outputs of its runs", default by "spool_mib";
        runs in 1..=64 "runs": u32, "programs that it may run at once", default by "runs";
        share in 1..=1_000: u32, "weight by which workers are shared with other tenants", default by "share";
        instructions in 1..=20_000_000_000_000: u64, "instructions of one run", default by "instructions";
        seconds in 1..=86_400 "s": u32, "time of one run", default by "seconds";
        iops in 0..=10_000_000: u32, "I/O commands a second; 0 is without limit", default;
        bandwidth_mib in 0..=1_048_576 "MiB": u64, "data moved a second; 0 is without limit", default;
    }
}

fn node_memory_mib() -> u64 {
    1024
}

fn node_spool_mib() -> u64 {
    262_144
}

fn slots() -> u32 {
    64
}

fn local_memory_mib() -> u64 {
    64
}

fn memory_mib() -> u64 {
    512
}

fn spool_mib() -> u64 {
    65_536
}

fn runs() -> u32 {
    4
}

fn share() -> u32 {
    1
}

fn instructions() -> u64 {
    RUN_INSTRUCTIONS_MAX
}

fn seconds() -> u32 {
    7200
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { memory_mib: node_memory_mib(), spool_mib: node_spool_mib() }
    }
}

impl TenantRules {
    /// Returns the rules of a host that no text names: all arrays, all programs, the default limits.
    pub fn of_host(hostnqn: &str) -> Self {
        Self {
            hosts: vec![hostnqn.to_owned()],
            read: vec!["*".to_owned()],
            write: vec!["*".to_owned()],
            programs: true,
            slots: slots(),
            local_memory_mib: local_memory_mib(),
            memory_mib: memory_mib(),
            spool_mib: spool_mib(),
            runs: runs(),
            share: share(),
            instructions: instructions(),
            seconds: seconds(),
            iops: 0,
            bandwidth_mib: 0,
        }
    }
}

/// The text that names tenants, as TOML has it.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRules {
    #[serde(default)]
    node: NodeLimits,
    #[serde(default)]
    tenants: BTreeMap<String, TenantRules>,
}

/// The rules of a node: its limits, and its tenants by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// Limits of the node as a whole.
    pub node: NodeLimits,
    /// Rules by the names of tenants; empty if every host is a tenant of its own.
    pub tenants: BTreeMap<String, TenantRules>,
}

impl NodeRules {
    /// Reads rules from a TOML text; `subject` names the text in errors.
    ///
    /// # Errors
    /// All problems with their lines: no TOML, an unknown key, a value of another type or out of its range, a host of
    /// two tenants or of none, no tenant.
    pub fn parse(text: &str, subject: &str) -> Result<Self, Invalid> {
        let lines = LineNumbers::new(text);
        let mut problems = Vec::new();
        let mut problem = |at: Option<usize>, key: String, value: String, what: &str, allowed: String| {
            problems.push(Problem { line: at.map(|at| lines.of(at)), key, value, what: what.to_owned(), allowed });
        };
        let invalid = |problems| Invalid { noun: "rules", subject: subject.to_owned(), problems };
        let read: WrittenRules = match toml::from_str(text) {
            Ok(read) => read,
            Err(error) => {
                let at = error.span().map(|span| span.start);
                problem(at, String::new(), String::new(), error.message(), String::new());
                return Err(invalid(problems));
            }
        };
        let places = KeyPlaces::of(text);
        if let Some((key, value, needed)) = read.node.out_of_range() {
            problem(places.find(&["node", key]), format!("node.{key}"), value, "is out of range", needed);
        }
        if read.tenants.is_empty() || read.tenants.len() > TENANTS_MAX {
            let found = read.tenants.len().to_string();
            problem(None, "tenants".to_owned(), found, "tables", format!("1 to {TENANTS_MAX} are needed"));
        }
        let mut known = BTreeMap::<&str, &str>::new();
        for (name, rules) in &read.tenants {
            let path = |key: &str| format!("tenants.{name}.{key}");
            let at = |key: &str| places.find(&["tenants", name, key]);
            if let Some((key, value, needed)) = rules.out_of_range() {
                problem(at(key), path(key), value, "is out of range", needed);
            }
            if rules.local_memory_mib > rules.memory_mib {
                let most = format!("at most memory_mib, {}, is allowed", rules.memory_mib);
                let value = rules.local_memory_mib.to_string();
                problem(at("local_memory_mib"), path("local_memory_mib"), value, "is more than its memory", most);
            }
            if rules.hosts.is_empty() {
                problem(
                    at("hosts"),
                    path("hosts"),
                    "[]".to_owned(),
                    "has no host",
                    "a host's name is needed".to_owned(),
                );
            }
            if [DISCOVERY_TENANT, OTHER_TENANTS].contains(&name.as_str()) {
                problem(None, format!("tenants.{name}"), String::new(), "is a name of the server's own", String::new());
            }
            for host in &rules.hosts {
                if let Some(what) = fault(host) {
                    let needed = "a name, or the beginning of some with * behind it, is needed".to_owned();
                    problem(at("hosts"), path("hosts"), host.clone(), what, needed);
                }
                if let Some(other) = known.insert(host, name) {
                    let needed = "one tenant a host is needed".to_owned();
                    problem(at("hosts"), path("hosts"), host.clone(), &format!("is a host of {other}, too"), needed);
                }
            }
        }
        if problems.is_empty() { Ok(Self { node: read.node, tenants: read.tenants }) } else { Err(invalid(problems)) }
    }

    /// Returns the names of all hosts that belong to a tenant.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.tenants.values().flat_map(|rules| &rules.hosts).map(String::as_str)
    }

    /// Returns the entry that a host belongs to; `Err` if there are no tenants.
    pub(crate) fn entry_of(&self, hostnqn: &str) -> Result<Option<String>, NoRules> {
        if self.tenants.is_empty() { Err(NoRules) } else { Ok(entry_of(self.hosts(), hostnqn).map(str::to_owned)) }
    }

    /// Returns the name and the rules of a host's tenant; `None` if there are tenants, and the host is none's.
    pub(crate) fn tenant_of(&self, hostnqn: &str) -> Option<(String, TenantRules)> {
        if self.tenants.is_empty() {
            return Some((hostnqn.to_owned(), TenantRules::of_host(hostnqn)));
        }
        let entry = entry_of(self.hosts(), hostnqn)?;
        let mut tenants = self.tenants.iter();
        tenants.find(|(_, rules)| rules.hosts.iter().any(|host| host == entry)).map(|(n, r)| (n.clone(), r.clone()))
    }
}

/// There are no rules: every host that may connect is a tenant.
#[derive(Debug)]
pub(crate) struct NoRules;

/// A TOML text with the places of its keys.
struct KeyPlaces<'t>(Option<toml::Spanned<toml::de::DeTable<'t>>>);

impl<'t> KeyPlaces<'t> {
    fn of(text: &'t str) -> Self {
        Self(toml::de::DeTable::parse(text).ok())
    }

    /// Returns the place of a key; of the last part of its path that is there, if the key is left out.
    fn find(&self, path: &[&str]) -> Option<usize> {
        let mut table = self.0.as_ref()?.get_ref();
        let mut at = None;
        for part in path {
            let Some((key, value)) = table.get_key_value(*part) else { break };
            at = Some(key.span().start);
            let Some(inner) = value.get_ref().as_table() else { break };
            table = inner;
        }
        at
    }
}

/// A pattern of names: `*` stands for any characters, and nothing stands for a single one (no name has a zero byte).
type ArrayPattern = WildMatchPattern<'*', '\0'>;

/// The arrays that a tenant may use, as patterns of their names.
#[derive(Debug)]
struct ArrayPatterns {
    read: Vec<ArrayPattern>,
    write: Vec<ArrayPattern>,
}

impl ArrayPatterns {
    fn of(rules: &TenantRules) -> Self {
        let of = |patterns: &[String]| patterns.iter().map(|pattern| ArrayPattern::new(pattern)).collect();
        Self { read: of(&rules.read), write: of(&rules.write) }
    }

    fn writes(&self, name: &str) -> bool {
        self.write.iter().any(|pattern| pattern.matches(name))
    }

    fn reads(&self, name: &str) -> bool {
        self.read.iter().any(|pattern| pattern.matches(name)) || self.writes(name)
    }
}

/// The rules in force for a tenant.
#[derive(Debug)]
struct RulesInForce {
    rules: TenantRules,
    patterns: ArrayPatterns,
}

/// The pace at which a tenant's commands are executed: the times at which it has used up what it has begun.
#[derive(Debug, Default)]
struct TenantPace {
    commands: Duration,
    bytes: Duration,
}

/// Time for which a tenant that was idle may exceed its rates.
const BURST: Duration = Duration::from_millis(50);

/// An owner of a part of the workers, the connections, the memory and the disk, which its tenants share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TenantOwner {
    /// One tenant, by its name.
    Tenant(Arc<str>),
    /// The hosts at one place that no rules name and no secret proves: their names may be made up.
    Place(Arc<str>),
}

/// A tenant's state in a server, which its associations share.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: String,
    owner: TenantOwner,
    force: RwLock<Arc<RulesInForce>>,
    pace: Mutex<TenantPace>,
    pub(crate) budget: Arc<Budget>,
    /// The budget of the disk on which outputs wait for the end of their run.
    pub(crate) spool: Arc<Budget>,
    pub(crate) programs: Programs,
    pub(crate) memory: LocalMemory,
    pub(crate) errors: ErrorLog,
}

impl Tenant {
    fn new(name: &str, owner: TenantOwner, rules: TenantRules, whole: &Budgets, memory_bytes: usize) -> Arc<Self> {
        let Budgets { memory: budget, spool } = Budgets::of(&rules, Some(whole));
        let patterns = ArrayPatterns::of(&rules);
        Arc::new(Self {
            name: name.to_owned(),
            owner,
            pace: Mutex::default(),
            programs: Programs::new(budget.clone()),
            memory: LocalMemory::new(memory_bytes, budget.clone()),
            errors: ErrorLog::default(),
            budget,
            spool,
            force: RwLock::new(Arc::new(RulesInForce { rules, patterns })),
        })
    }

    /// Returns the name: that of the rules, or the host's.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns who it shares its part of the node with: itself, or, of hosts that no rules name and no secret proves,
    /// all those at one address or of one user.
    pub(crate) fn owner(&self) -> &TenantOwner {
        &self.owner
    }

    /// Returns a value of the rules.
    pub(crate) fn rule<T>(&self, of: impl FnOnce(&TenantRules) -> T) -> T {
        of(&self.force.read().rules)
    }

    fn set_rules(&self, rules: TenantRules) {
        self.budget.set_limit(rules.memory_mib * MIB);
        self.spool.set_limit(rules.spool_mib * MIB);
        let patterns = ArrayPatterns::of(&rules);
        *self.force.write() = Arc::new(RulesInForce { rules, patterns });
    }

    /// Counts a command that moves `bytes` bytes, at a time since the server began; returns the time for which it has
    /// to wait, so that the tenant keeps its rates.
    pub(crate) fn pace(&self, now: Duration, bytes: u64) -> Duration {
        let (iops, bandwidth) = self.rule(|rules| (rules.iops, rules.bandwidth_mib * MIB));
        if iops == 0 && bandwidth == 0 {
            return Duration::ZERO;
        }
        let mut pace = self.pace.lock();
        let TenantPace { commands, bytes: moved } = &mut *pace;
        let rates = [(commands, 1, u64::from(iops)), (moved, bytes, bandwidth)];
        let waits = rates.into_iter().filter(|(_, _, rate)| *rate > 0).map(|(next, cost, rate)| {
            let begin = (*next).max(now);
            *next = begin + Duration::from_secs_f64(cost as f64 / rate as f64);
            begin.saturating_sub(now + BURST)
        });
        waits.max().unwrap_or_default()
    }
}

/// The budgets of memory and disk of the node, or of an owner.
#[derive(Clone, Debug)]
struct Budgets {
    memory: Arc<Budget>,
    spool: Arc<Budget>,
}

impl Budgets {
    /// Makes the budgets of a tenant, or of an owner whose tenants have these rules each.
    fn of(rules: &TenantRules, whole: Option<&Self>) -> Self {
        Self {
            memory: Budget::new(rules.memory_mib * MIB, whole.map(|whole| whole.memory.clone())),
            spool: Budget::new(rules.spool_mib * MIB, whole.map(|whole| whole.spool.clone())),
        }
    }

    /// Makes the budgets of a node.
    fn of_node(limits: &NodeLimits) -> Self {
        let of = |mib: u64| Budget::new(mib * MIB, None);
        Self { memory: of(limits.memory_mib), spool: of(limits.spool_mib) }
    }
}

impl ArrayAccess for Tenant {
    fn reads(&self, name: &str) -> bool {
        self.force.read().patterns.reads(name)
    }

    fn writes(&self, name: &str) -> bool {
        self.force.read().patterns.writes(name)
    }
}

#[derive(Debug)]
struct TenantTable {
    rules: NodeRules,
    /// Tenants with a state, each with the number of the admission at which it was used last.
    live: BTreeMap<String, (Arc<Tenant>, u64)>,
    admissions: u64,
    /// Budgets of owners that have several tenants.
    owners: BTreeMap<TenantOwner, [Weak<Budget>; 2]>,
    /// Times since which tenants without rules and without an association keep much memory.
    idle: BTreeMap<String, Duration>,
}

/// The tenants of a subsystem.
#[derive(Debug)]
pub(crate) struct Tenants {
    node: Budgets,
    table: Mutex<TenantTable>,
    /// Size of the Subsystem Local Memory of a host that is a tenant of its own, in bytes; `None` without programs.
    memory_bytes: Option<usize>,
}

impl Tenants {
    pub(crate) fn new(rules: NodeRules, memory_bytes: Option<usize>) -> Self {
        let node = Budgets::of_node(&rules.node);
        let (live, owners, idle) = Default::default();
        let table = TenantTable { rules, live, admissions: 0, owners, idle };
        Self { node, table: Mutex::new(table), memory_bytes }
    }

    /// Returns the tenant of a host that only looks for subsystems: it may use nothing.
    pub(crate) fn stranger() -> Arc<Tenant> {
        let none = || Vec::new();
        let rules =
            TenantRules { hosts: none(), read: none(), write: none(), programs: false, ..TenantRules::of_host("") };
        let none_left = Budgets::of_node(&NodeLimits { memory_mib: 0, spool_mib: 0 });
        Tenant::new(DISCOVERY_TENANT, TenantOwner::Tenant(DISCOVERY_TENANT.into()), rules, &none_left, 0)
    }

    /// Returns the budget of the node.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.node.memory
    }

    /// Whether a host belongs to a tenant.
    pub(crate) fn knows(&self, hostnqn: &str) -> bool {
        self.table.lock().rules.tenant_of(hostnqn).is_some()
    }

    /// Returns the entry of the rules that a host belongs to; `Err` without rules.
    pub(crate) fn entry_of(&self, hostnqn: &str) -> Result<Option<String>, NoRules> {
        self.table.lock().rules.entry_of(hostnqn)
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> NodeRules {
        self.table.lock().rules.clone()
    }

    /// Returns the tenant of a host that connects; `None` if it is none's. Without rules, a host that has not to prove
    /// its name shares its part of the node with all at the same place, its `peer`.
    pub(crate) fn admit(&self, hostnqn: &str, peer: Option<&str>) -> Option<Arc<Tenant>> {
        let mut table = self.table.lock();
        let (name, rules) = table.rules.tenant_of(hostnqn)?;
        table.admissions += 1;
        let TenantTable { live, admissions, rules: all, owners, .. } = &mut *table;
        forget_idle(live, all);
        owners.retain(|_, [memory, _]| memory.strong_count() > 0);
        let named = !all.tenants.is_empty();
        let size = self.memory_bytes.map_or(0, |own| if named { (rules.local_memory_mib * MIB) as usize } else { own });
        let mut whole = self.node.clone();
        let owner = match peer.filter(|_| !named) {
            None => TenantOwner::Tenant(name.as_str().into()),
            Some(peer) => TenantOwner::Place(peer.into()),
        };
        let is_alone = |owner: &TenantOwner| matches!(owner, TenantOwner::Tenant(_));
        if !is_alone(&owner) {
            let known = owners
                .get(&owner)
                .and_then(|[memory, spool]| Some(Budgets { memory: memory.upgrade()?, spool: spool.upgrade()? }));
            whole = known.unwrap_or_else(|| Budgets::of(&rules, Some(&whole)));
            owners.insert(owner.clone(), [&whole.memory, &whole.spool].map(Arc::downgrade));
        }
        // A host that proves its name does not get programs and memory of hosts that only gave it.
        if live.get(&name).is_some_and(|(tenant, _)| is_alone(&tenant.owner) != is_alone(&owner)) {
            live.remove(&name);
        }
        let made = || Tenant::new(&name, owner, rules, &whole, size);
        let (tenant, used) = live.entry(name.clone()).or_insert_with(|| (made(), 0));
        *used = *admissions;
        Some(tenant.clone())
    }

    /// Replaces the rules.
    pub(crate) fn replace(&self, rules: NodeRules) {
        let mut table = self.table.lock();
        self.node.memory.set_limit(rules.node.memory_mib * MIB);
        self.node.spool.set_limit(rules.node.spool_mib * MIB);
        for (name, (tenant, _)) in &table.live {
            let next = if rules.tenants.is_empty() {
                Some(TenantRules::of_host(name))
            } else {
                rules.tenants.get(name).cloned()
            };
            if let Some(next) = next {
                tenant.set_rules(next);
            }
        }
        table.rules = rules;
    }

    /// Whether a host still belongs to the tenant that it has connected as.
    pub(crate) fn is_host_of(&self, hostnqn: &str, tenant: &Tenant) -> bool {
        self.table.lock().rules.tenant_of(hostnqn).is_some_and(|(name, _)| name == tenant.name)
    }

    /// Forgets tenants without rules that keep much memory, and have had no association for [`IDLE_TIME`]; `now` is a
    /// time since the transport began.
    pub(crate) fn end_idle(&self, now: Duration) {
        let mut table = self.table.lock();
        let TenantTable { live, rules, idle, .. } = &mut *table;
        let is_idle = |name: &String, tenant: &Arc<Tenant>| {
            let is_large = tenant.budget.used() > IDLE_BYTES_MAX;
            is_large && Arc::strong_count(tenant) == 1 && !rules.tenants.contains_key(name)
        };
        idle.retain(|name, _| live.get(name).is_some_and(|(tenant, _)| is_idle(name, tenant)));
        live.retain(|name, (tenant, _)| {
            let begun = if is_idle(name, tenant) { *idle.entry(name.clone()).or_insert(now) } else { now };
            now.saturating_sub(begun) < IDLE_TIME
        });
    }

    /// Returns the tenants that have a state.
    pub(crate) fn live(&self) -> Vec<Arc<Tenant>> {
        self.table.lock().live.values().map(|(tenant, _)| tenant.clone()).collect()
    }
}

/// Forgets tenants that no association uses: those without rules, of which the last [`IDLE_MAX`] stay.
fn forget_idle(live: &mut BTreeMap<String, (Arc<Tenant>, u64)>, rules: &NodeRules) {
    let idle = |(name, (tenant, used)): (&String, &(Arc<Tenant>, u64))| {
        let unused = Arc::strong_count(tenant) == 1 && !rules.tenants.contains_key(name);
        unused.then_some(*used)
    };
    let mut unused: Vec<u64> = live.iter().filter_map(idle).collect();
    unused.sort_unstable();
    let forgotten: BTreeSet<u64> = unused.iter().rev().skip(IDLE_MAX).copied().collect();
    live.retain(|_, (_, used)| !forgotten.contains(used));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::SLOTS;

    const TEXT: &str = r#"
[node]
memory_mib = 256

[tenants.sales]
hosts = ["nqn.sales", "nqn.desk"]
read = ["sales/*", "ns/1"]
write = ["sales/out/*"]
programs = true
iops = 1000

[tenants.lab]
hosts = ["nqn.lab"]
"#;

    fn problems(text: &str) -> Vec<String> {
        let invalid = NodeRules::parse(text, "node.toml").unwrap_err();
        invalid.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_name_hosts_arrays_and_limits() {
        let rules = NodeRules::parse(TEXT, "node.toml").unwrap();
        assert_eq!(rules.hosts().collect::<Vec<_>>(), ["nqn.lab", "nqn.sales", "nqn.desk"]);
        let (name, sales) = rules.tenant_of("nqn.desk").unwrap();
        assert_eq!((&*name, sales.programs, sales.slots), ("sales", true, 64));
        assert_eq!(rules.tenant_of("nqn.stranger"), None);
        let tenants = Tenants::new(rules, Some(1 << 20));
        let [sales, desk, lab] =
            ["nqn.sales", "nqn.desk", "nqn.lab"].map(|host| tenants.admit(host, Some("::1")).unwrap());
        assert!(Arc::ptr_eq(&sales, &desk) && tenants.admit("nqn.stranger", None).is_none());
        assert_eq!(
            [&sales, &lab].map(|tenant| tenant.owner().clone()),
            ["sales", "lab"].map(|name| TenantOwner::Tenant(name.into()))
        );
        let may = |name: &str| (sales.reads(name), sales.writes(name), lab.reads(name));
        assert_eq!(may("sales/a/b"), (true, false, false));
        assert_eq!(may("sales/out/x"), (true, true, false));
        assert_eq!(may("sales"), (false, false, false));
        assert_eq!(may("ns/1"), (true, false, false));
        assert_eq!(may("ns/10"), (false, false, false));
        assert!(ArrayPattern::new("a?").matches("a?") && !ArrayPattern::new("a?").matches("ab"));
    }

    #[test]
    fn the_most_instructions_are_those_of_any_run() {
        let rules = |instructions| TenantRules { instructions, ..TenantRules::of_host("h") };
        assert_eq!(rules(RUN_INSTRUCTIONS_MAX).out_of_range(), None);
        assert!(rules(RUN_INSTRUCTIONS_MAX + 1).out_of_range().is_some());
        let slots = |slots| TenantRules { slots, ..TenantRules::of_host("h") };
        assert!(slots(SLOTS.into()).out_of_range().is_none() && slots(u32::from(SLOTS) + 1).out_of_range().is_some());
    }

    #[test]
    fn every_problem_has_its_line() {
        assert_eq!(
            problems(&TEXT.replace("256", "3")),
            ["line 3: node.memory_mib = 3 is out of range; 128 to 1048576 MiB are needed"]
        );
        assert_eq!(
            problems(&TEXT.replace("iops = 1000", "seconds = 0\nruns = 65")),
            ["line 11: tenants.sales.runs = 65 is out of range; 1 to 64 runs are needed"]
        );
        let unknown = problems(&TEXT.replace("iops", "iop"));
        assert!(unknown[0].starts_with("line 10: unknown field `iop`, expected one of `hosts`, `read`"), "{unknown:?}");
        let twice = problems(&TEXT.replace("nqn.lab", "nqn.desk"));
        assert_eq!(
            twice,
            ["line 6: tenants.sales.hosts = nqn.desk is a host of lab, too; one tenant a host is needed"]
        );
        assert_eq!(
            problems(&TEXT.replace("\"nqn.lab\"", "")),
            ["line 13: tenants.lab.hosts = [] has no host; a host's name is needed"]
        );
        assert_eq!(problems("[node]\n"), ["tenants = 0 tables; 1 to 1024 are needed"]);
        assert!(problems("[node\n")[0].starts_with("line 1: "));
        assert!(problems("[tenants.a]\nhosts = 3\n")[0].starts_with("line 2: invalid type"));
    }

    #[test]
    fn a_tenant_keeps_its_rates_after_a_burst() {
        let rules = TenantRules { iops: 1000, bandwidth_mib: 1, ..TenantRules::of_host("h") };
        let tenant =
            Tenant::new("h", TenantOwner::Tenant("h".into()), rules, &Budgets::of_node(&NodeLimits::default()), 0);
        let begin = Duration::from_secs(3);
        let waits: Vec<Duration> = (0..1000).map(|_| tenant.pace(begin, 0)).collect();
        assert_eq!((waits[0], waits[50]), (Duration::ZERO, Duration::ZERO));
        assert_eq!(waits[999].as_millis(), 999 - BURST.as_millis());
        let later = begin + Duration::from_secs(2);
        assert_eq!(tenant.pace(later, MIB), Duration::ZERO);
        assert_eq!(tenant.pace(later, MIB).as_millis(), 1000 - BURST.as_millis());
    }

    #[test]
    fn hosts_that_went_are_forgotten_and_rules_are_replaced_under_those_that_stay() {
        let tenants = Tenants::new(NodeRules::default(), Some(1 << 20));
        let stays = tenants.admit("nqn.stays", None).unwrap();
        for host in 0..100 {
            tenants.admit(&format!("nqn.{host}"), None).unwrap();
        }
        assert_eq!(tenants.live().len(), IDLE_MAX + 2);
        assert!(Arc::ptr_eq(&stays, &tenants.admit("nqn.stays", None).unwrap()));
        tenants.replace(NodeRules::parse(&TEXT.replace("nqn.lab", "nqn.stays"), "").unwrap());
        assert!(!tenants.is_host_of("nqn.stays", &stays), "it is a host of another tenant now");
        tenants.replace(NodeRules::default());
        assert!(tenants.is_host_of("nqn.stays", &stays) && stays.writes("anything"));
    }

    #[test]
    fn made_up_names_at_one_place_share_one_part_and_others_have_their_own() {
        let tenants = Tenants::new(NodeRules::default(), Some(1 << 20));
        let made: Vec<_> = (0..40).map(|n| tenants.admit(&format!("nqn.{n}"), Some("192.0.2.7")).unwrap()).collect();
        let other = tenants.admit("nqn.other", Some("192.0.2.8")).unwrap();
        let proven = tenants.admit("nqn.proven", None).unwrap();
        assert!(made.iter().all(|one| one.owner() == made[0].owner() && !Arc::ptr_eq(&one.budget, &other.budget)));
        assert_eq!(other.owner(), &TenantOwner::Place("192.0.2.8".into()));
        assert_eq!(proven.owner(), &TenantOwner::Tenant("nqn.proven".into()));
        // A name that looks like a place has the part of its place; what is loaded stays with who loaded it.
        let odd = tenants.admit("192.0.2.7", Some("192.0.2.7")).unwrap();
        assert_eq!(odd.owner(), made[0].owner());
        assert!(Arc::ptr_eq(&other, &tenants.admit("nqn.other", Some("192.0.2.9")).unwrap()));
        assert!(!Arc::ptr_eq(&other, &tenants.admit("nqn.other", None).unwrap()));
        let mut held: Vec<_> = made.iter().map(|one| one.budget.reserve(0).unwrap()).collect();
        held.iter_mut().for_each(|one| while one.grow(1 << 20).is_ok() {});
        assert!(tenants.budget().used() <= 512 << 20, "{} bytes of 40 names", tenants.budget().used());
        assert!(proven.budget.reserve(100 << 20).is_ok());
        drop((held, made));
        assert_eq!(tenants.budget().used(), 0);
    }
}
