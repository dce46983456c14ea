// Package oci makes container images of static programs, without a container engine and without a base image. An image holds the
// program, the user that it runs as, a place for temporary files, and the list of the program's modules.
//
// An image is a function of its content: it has the same bytes on every machine, at any time. Its layers hold no times and no
// owners.
//
// An image has no CA certificates, because our programs trust no public authority: each reads whom to trust from a mounted file
// of the cluster or the pool. It has no shell, time zones or /etc/nsswitch.conf either, because Go does not need them.
package oci
