// Package upstream is a client of one API server, which has one or several equal addresses.
//
// Requests go to one address for as long as its link is up. A request moves to another address in two cases only. Either nothing
// of it was sent and its body can be read again, or it is a read and the link to its server has just gone down. So no write is
// ever sent twice. Requests travel over HTTP/2, or over HTTP/1.1 if they ask for an upgrade (exec, attach, port-forward). The
// node's requests have a connection for each lane, and so have callers' requests. Thus a heartbeat does not queue behind
// megabytes.
//
// Invariants:
//   - When a server's link goes down, the hub resets every connection to it at once, and the kernel drops the bytes that it still
//     holds for them. Otherwise a heartbeat sent into a dead link could arrive when the link heals. Every request in flight and
//     every response body still being read ends with a DownError.
//   - While a link is down, only probes are sent over it, and requests fail at once.
//   - A connection opened before the credentials changed carries no request made afterwards.
//   - No request has a time limit of its own, because a watch must not end by one. But each dial, handshake and probe has a
//     limit, and so has the silence of a connection.
//
// The alternative to resetting connections was a watchdog timer per request. Such a timer cannot tell a quiet watch from a dead
// one, and leaves the bytes in the kernel.
//
// # The way to a server
//
// Way opens a hub's connections to the cloud: to an API server by its name, directly or through a proxy.
//
// Invariants:
//   - Each new connection looks the server's name up. While no name server answers, the hub uses the previous addresses, so that
//     a site whose name server is down is not cut off.
//   - Of several addresses, the hub uses the first that accepts the connection. A silent address costs a moment only.
//   - TLS goes end to end. A proxy learns the server's name and port, and nothing else.
//   - A proxy's password appears in no error, no log and no flag.
//
// The pool's coordinator is on the LAN, so its connections never use a Way.
//
// A Way does not use the field Proxy of http.Transport, because the transport of HTTP/2 has no such field. Besides, a hub must
// know each connection, to reset it when the link goes down.
//
// # The time by which certificates are checked
//
// CertClock is the clock by which a hub checks servers' certificates. It returns the latest of three times: this machine's clock,
// the NotBefore of the node's own certificate, and the latest NotBefore of a server's certificate that it has verified. Only the
// third is kept on disk.
//
// The reason is that a machine without a battery-backed clock starts at a time in the past. Then a server's certificate would be
// "not yet valid", although this hub has verified it before. An authority does not date certificates into the future, so a
// NotBefore is a lower bound of the true time.
//
// Invariants:
//   - The returned time is ahead of this machine's clock only as far as a verified certificate, or the node's own, proves.
//   - The hub verifies a server's certificate by CertClock's time before it records the certificate. So it never records one from
//     the future.
//   - The NotBefore of the node's own certificate is not kept on disk, so the NotBefore of a replacement counts at once.
//   - The file is read once, and written when a newer certificate was seen. If it can't be read, its time does not count. If it
//     can't be written, the newer time counts until the hub restarts.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - server.unready: entered when a server says that it is not ready; ends when it says that it is. (TestFailoverWhenNotReady)
//   - server.untaken: entered when untakenMost requests about a Lease in a row fail; ends when a write of a Lease is taken, or
//     when leftFor is over. (TestASickServerIsAskedAgain, TestSickServer)
//   - Upstream.current: entered when a server answers after the one before has failed; ends when it fails, is not ready, takes no
//     Leases or is down. (TestFailingServerIsLeft, TestFailoverWhenNotReady)
//   - Upstream.detour: entered when the node's own line is down and a neighbour's may be used; ends when the own line is up,
//     after detourDrain for requests under way, or when the neighbour's may not be used. A detour that fails is tried again after
//     detourPause. (TestDetour, TestHealingLetsRequestsEnd)
//   - session.http1Only: entered when a server turns out to have no HTTP/2; ends when its connections are reset.
//     (TestServerWithoutHTTP2)
//   - session.epoch: entered when connections may be opened; ends when they are reset, and the next begins at once.
//     (TestServerWithoutHTTP2, TestCut)
//   - joiner.held: entered when headers wait for their body; ends when it comes, or when joinFor is over.
//     (TestHeadersWaitForTheirBody)
//   - knocker.skip: entered when the second or a later knock in a row gets no answer; ends when 1, 3, 7 and so on up to
//     knockSkipMost probes have done without a knock. An answered knock begins the count anew. (TestKnocksWithoutAnAnswer)
//   - absences: entered when a name server leaves out an address in use; ends when it names the address again, or when the
//     address has been missing for addressTiming.left and the hub has left it. (TestAbsences, TestAnAddressLeaves)
//   - Way.known: entered when a name server has answered; ends when it answers again. If a lookup fails or takes longer than
//     patience, the known addresses are used. (TestNameServerIsGone)
//   - Upstream.credentials: entered when the files are read; ends when pollCredentials is over and changed files are good.
//     (TestCertificateReload)
//   - CertClock.latest: entered when a server's certificate is verified; ends when this machine's clock has passed the
//     certificate's NotBefore. (TestClockThatGoesBack)
//   - CertClock.own: entered when the node has a certificate; ends when it has another. (TestTheNodesOwnCertificate)
package upstream
