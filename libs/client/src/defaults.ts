/** Times and sizes of a client: times in milliseconds, sizes in bytes. */
export const CLIENT = {
  /** How long a dial may take where its caller sets no `timeoutMs`. */
  dialMs: 30_000,
  /** How long a gateway may take to be connected and to finish its handshake, before the next one is tried. */
  connectMs: 5_000,
  /** The longest head of an answer to CONNECT. */
  headBytes: 16 * 1024,
  /** TCP keepalive of a connection to a gateway: how long it is silent before the first probe. */
  keepAliveMs: 15_000,
};
