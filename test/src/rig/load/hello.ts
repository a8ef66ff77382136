/** The name by which clients ask. */
export const NAME = 'api.bench.example';

/** The first byte of a TLS record with a handshake. */
export const HELLO = 22;

/** A vector with its length in front. */
function vector(bytes: Buffer, size: number): Buffer {
  const length = Buffer.alloc(size);
  length.writeUIntBE(bytes.length, 0, size);
  return Buffer.concat([length, bytes]);
}

function extension(type: number, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from([type >> 8, type & 0xff]), vector(body, 2)]);
}

/** A ClientHello as long as that of a client with a post-quantum key share, in one record. Nobody answers it in TLS: the bytes are what costs. */
export function helloOf(random: Buffer): Buffer {
  const entry = Buffer.concat([Buffer.from([0]), vector(Buffer.from(NAME), 2)]);
  const extensions = Buffer.concat([
    extension(0, vector(entry, 2)),
    extension(10, vector(Buffer.from([0x11, 0xec, 0, 29]), 2)),
    extension(43, vector(Buffer.from([3, 4]), 1)),
    extension(51, vector(Buffer.concat([Buffer.from([0x11, 0xec]), vector(Buffer.alloc(1216), 2)]), 2)),
  ]);
  const suites = vector(Buffer.from([0x13, 1, 0x13, 2]), 2);
  const body = [Buffer.from([3, 3]), random, vector(Buffer.alloc(32), 1), suites, vector(Buffer.from([0]), 1)];
  const message = Buffer.concat([Buffer.from([1]), vector(Buffer.concat([...body, vector(extensions, 2)]), 3)]);
  return Buffer.concat([Buffer.from([HELLO, 3, 1]), vector(message, 2)]);
}

export const HELLO_BYTES: number = helloOf(Buffer.alloc(32)).length;
