/*
 * The DNS names (subjectAltName) by which a certificate proves a role between the processes of a plane. Addresses prove nothing: a
 * pod's address is not known in advance, and anyone who can write to the registry can put any address there.
 */

/** Proves a hub to gateways. Agents accept it too, besides the name of the configured server. */
export const HUB_SERVER_NAME = 'isthmus-hub';

/** Proves a gateway to hubs. */
export const GATEWAY_NAME = 'isthmus-gateway';
