// Package demo tells the story that Fairlead exists for, on a real cluster: traffic from
// every node and from a Pod goes on while a Pod turns unready, comes back, and while its
// Deployment is rolled, and not one request fails.
//
// Input: a Config. Output: a timeline for people, and an error if the story did not come
// true. Package cluster gives the cluster, fairlead the product, traffic the requests.
package demo
