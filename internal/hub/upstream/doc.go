// Package upstream is a client of one API server, which has one or several equal addresses.
//
// Requests go to one address for as long as its link is up. A request moves to another address in two cases only: nothing of it
// can have been sent, or it is a read and the link to its server has just gone down. So no write is ever sent twice. Requests
// travel over HTTP/2; those that ask for an upgrade (exec, attach, port-forward) use HTTP/1.1. Each identity has up to three
// connections (see lane), so that a heartbeat does not queue behind megabytes on one connection.
//
// The code that judges links and chooses servers sees connections only through Session: see Sessions.
//
// Invariants:
//   - When a server's link goes down, the hub resets every connection to it at once, and the kernel drops the bytes that it
//     still holds for them: a heartbeat sent into a dead link must not arrive when the link heals. Every request in flight and
//     every response body still being read ends with a DownError.
//   - While a link is down, nothing but probes is sent over it, and requests fail at once.
//   - A connection opened before the credentials changed carries no request made afterwards.
//   - No request has a time limit of its own, because a watch has none. Every step that can hang (dial, handshake,
//     probe, silent connection) has one.
//
// The alternative to resetting connections was a watchdog timer per request. Such a timer cannot tell a quiet watch from a dead
// one, and leaves the bytes in the kernel.
//
// # The way to a server
//
// Way opens a hub's connections to the cloud: to an API server by its name, directly or through a proxy.
//
// Invariants:
//   - Each new connection looks the server's name up. While no name server answers, the hub uses the previous addresses: a site
//     whose name server is down is not cut off.
//   - Of several addresses, the hub uses the first that accepts the connection. A silent address costs a moment only.
//   - TLS goes end to end. A proxy learns the server's name and port, and nothing else.
//   - A proxy's password appears in no error, no log and no flag.
//
// The pool's coordinator is on the LAN, so its connections never use a Way.
//
// A Way does not use the Proxy of http.Transport: an HTTP/2 transport has no such field, and a hub must know each connection to
// reset it when the link goes down.
//
// # The time by which certificates are checked
//
// CertClock is the clock by which a hub checks servers' certificates. It returns the latest of three times: this machine's
// clock, the NotBefore of the node's own certificate, and the latest NotBefore of a server's certificate that it has verified.
// It keeps the last of these on disk.
//
// The reason is that a machine without a battery-backed clock starts at a time in the past. A certificate that a server got
// after that time would be "not yet valid", although this hub has verified it before. An authority does not date certificates
// into the future, so a NotBefore is a lower bound of the true time.
//
// Invariants:
//   - The returned time is ahead of this machine's clock only as far as a verified certificate, or the node's own, proves.
//   - The hub records a server's certificate only after verifying it by this same time, so it never records one from the
//     future.
//   - The NotBefore of the node's own certificate is not kept on disk, so the NotBefore of a replacement counts at once.
//   - The file is read once, and written when a newer certificate was seen. If it can't be read or written, the machine's
//     clock counts.
package upstream
