// Package upstream is one API server, reachable over one link at one or several equal addresses.
//
// Requests go to one address, for as long as it is up. A request moves to another only when nothing of it can have been
// sent, or when it is a read whose server's link has just gone down. What a server may have done already is never asked
// for twice. Requests travel over HTTP/2; those that ask for an upgrade (exec, attach, port-forward) over HTTP/1.1. Each identity
// has up to three connections (see lane), so that a heartbeat does not wait behind megabytes of its own connection.
//
// What judges links and chooses among servers knows of connections only what a Session says: see Sessions.
//
// Invariants:
//   - When a server's link goes down, every connection to it is reset at once, and what the kernel still holds for it
//     is dropped: a heartbeat sent into a dead link must not arrive when the link heals. Every request in flight and
//     every response body still being read ends with a DownError.
//   - While a link is down, nothing but probes is sent over it, and requests fail at once.
//   - A connection opened before the credentials changed carries no request made afterwards.
//   - No request has a time limit of its own, because a watch has none. Every step that can hang (dial, handshake,
//     probe, silent connection) has one.
//
// The alternative to resetting connections was a watchdog timer per request. It cannot tell a quiet watch from a dead
// one, and leaves the bytes in the kernel.
//
// # The way to a server
//
// Way is how a hub gets to the cloud: it opens connections to an API server by its name, directly or through a proxy.
//
// Invariants:
//   - A name is looked up for each connection. While no name server answers, the addresses of before count: a site whose name
//     server is down is not cut off.
//   - Of several addresses the first that takes the connection serves, and one that is silent costs a moment only.
//   - TLS goes end to end. A proxy learns which server is meant, and nothing else.
//   - The password of a proxy stands in no error, no log and no flag.
//
// The pool's coordinator is on the LAN: it is never reached by this way.
//
// http.Transport has a Proxy of its own. It was not used, since a hub keeps account of each connection, so as to reset it with
// the link; and an HTTP/2 transport has none.
//
// # The time by which certificates are checked
//
// CertClock tells the time by which a hub checks servers' certificates: the latest of this machine's clock, the NotBefore
// of the node's own certificate, and the latest NotBefore of a server's certificate that it has verified, which it keeps on disk.
//
// A machine without a clock of its own starts where it once was. A certificate that its server got since would then be "not yet
// valid", though this hub has verified it before. A certificate's authority does not sign for the future, so its NotBefore is a
// lower bound of the true time.
//
// Invariants: the time never lies after this machine's clock by more than what a verified certificate, or the node's own, proves.
// A server's certificate is noted only after it was verified by this time, so one from the future is never noted. The node's own
// is not kept: what comes in its place counts. The file is read once and written when a newer certificate was seen; if it can't
// be read or written, the machine's clock counts.
package upstream
