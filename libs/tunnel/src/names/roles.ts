/*
 * What a certificate names (subjectAltName, DNS) to prove a role between the processes of a plane. Addresses prove nothing: pods'
 * are not known beforehand, and those in the registry are whoever's can write there.
 */

/** A hub, to gateways; to agents too, beside the name of the configured server. */
export const HUB_SERVER_NAME = 'isthmus-hub';

/** A gateway, to hubs. */
export const GATEWAY_NAME = 'isthmus-gateway';
