// Package serving hands TLS the newest certificate there is, whoever made it.
//
// Input is a certificate, set by whoever renews it, or files that a mounted Secret keeps up to date; output is a tls.Config
// that serves the newest one to each new connection. Streams that are open live on when it changes. The neighbours are
// package authority, which signs certificates, and app, which joins the two.
package serving
