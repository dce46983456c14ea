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
package upstream
