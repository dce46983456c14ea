// Package access decides who may do what at the coordinator: who a caller is, which nodes belong to the pool, what a role allows,
// what a node may write into a Lease, and who leads.
//
// Invariants:
//   - No caller is believed about who leads. A node writes only its own name into the election Lease. Only this process's
//     monotonic clock says whether a holder has lapsed, never a renewTime.
//   - A certificate never makes its holder all-powerful, whichever groups it names.
//   - Nodes of other pools are refused everything. The pool's nodes never read Secrets, ConfigMaps or ServiceAccounts here.
//   - A caller with a link and without a certificate sees only the page, until the link ends.
//   - A refusal tells the caller what to do instead.
//
// The decisions about Leases are pure functions with tables. The alternative was a ValidatingAdmissionPolicy. A policy needs
// memory for its CEL environment, and can't know how long a Lease has stayed unchanged.
package access
