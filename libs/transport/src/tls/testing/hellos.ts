/** A vector with its length in front. */
function vector(bytes: Uint8Array, size: number): Buffer {
  const length = Buffer.alloc(size);
  length.writeUIntBE(bytes.length, 0, size);
  return Buffer.concat([length, bytes]);
}

export function extension(type: number, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from([type >> 8, type & 0xff]), vector(body, 2)]);
}

/** The body of a server_name extension (RFC 6066 section 3). */
export function serverNames(...names: readonly string[]): Buffer {
  const entries = names.map((name) => Buffer.concat([Buffer.from([0]), vector(Buffer.from(name, 'latin1'), 2)]));
  return vector(Buffer.concat(entries), 2);
}

/** The message of a ClientHello, without a record. */
export function helloOf(extensions: readonly Uint8Array[], random = Buffer.alloc(32, 1)): Buffer {
  const suites = vector(Buffer.from([0x13, 1, 0x13, 2]), 2);
  const fields = [Buffer.from([3, 3]), random, vector(Buffer.alloc(32), 1), suites, vector(Buffer.from([0]), 1)];
  const list = Buffer.concat(extensions);
  // So long a list has no length of two bytes: then it says what fits.
  const counted = list.length < 65_536 ? vector(list, 2) : Buffer.concat([Buffer.from([0xff, 0xff]), list]);
  return Buffer.concat([Buffer.from([1]), vector(Buffer.concat([...fields, counted]), 3)]);
}

export function named(name: string, random?: Buffer<ArrayBuffer>): Buffer {
  return helloOf(
    [extension(10, Buffer.alloc(8)), extension(0, serverNames(name)), extension(43, Buffer.alloc(3))],
    random,
  );
}

/** @param size of each record's fragment */
export function recordsOf(message: Buffer, size = 16_384): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size)
    records.push(Buffer.from([22, 3, 1]), vector(message.subarray(at, at + size), 2));
  return Buffer.concat(records);
}
