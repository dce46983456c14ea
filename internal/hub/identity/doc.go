// Package identity gets, keeps and renews the certificates by which a node is known: the client certificate that its
// hub reaches the cloud and the coordinator with, and the certificate that the hub serves Pods with.
//
// A node that has nothing begins with a bootstrap token, as kubeadm's, or with the certificate of the kubelet that is
// there already. It asks the cluster's own signers by CertificateSigningRequest, with a key that never leaves the node,
// and again with the certificate that it has when between 2/3 and 9/10 of that one's life is over. If that has expired,
// it goes through the other ways again, for as long as it takes.
//
// Files, all 0600, in a directory 0700 of their own:
//
//	ca.crt               the cloud's authority, as discovered; not when Config.CAFile gives it
//	client.pem           certificate and key of system:node:NAME; the same again as serving.* for Pods
//	client.request.key   the key of a request under way, so that a restart goes on with the request that it made
//	client.lock          held while a certificate is asked for and written
//
// Invariants: a certificate file is the old one or the new one, whole, at any instruction; what a signer returns is
// written only if it belongs to the key, is for this node and for this use, is valid by a clock that may be some
// minutes wrong, and has got the node through to the cloud under its name; a bootstrap token is sent only to a server
// whose certificate has been verified, and the authority to verify it with is accepted only if the token has signed it
// and a hash pins it (but see Config.UnsafeSkipCAVerification); no key and no token is in any log, error or status; one
// request at a time is under way per certificate, whatever the number of hubs in one directory, and only one that was
// denied, forgotten or answered with rubbish is followed by another; every goroutine ends with Run.
//
// The alternative was client-go's certificate.Manager with its FileStore. Its Stop returns at once (0.25 ms, with a
// rotation under way): nobody can wait for what it started; it takes what a signer sends for another name, or expired,
// for good; its store removes the link to the former file before the new one takes its place, syncs no directory and
// keeps every file that there ever was; it asks with a fresh request and key in every try, and where a request is never
// approved these pile up; it begins anew with the bootstrap credentials only when the process does; and its errors go
// to the log, where no Status finds them. client-go's typed clients, its parsing of kubeconfigs and keys, and about its
// rule of when to renew are kept.
package identity
