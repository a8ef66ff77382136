/** The methods that search in buffers and in strings. */
const SEARCHED = ['indexOf', 'includes'] as const;

type Sized = { readonly length: number };
type Method = (this: Sized, ...given: unknown[]) => unknown;
type Cost = (self: Sized, result: unknown, given: readonly unknown[]) => number;

/**
 * Returns how many bytes are searched and copied while `act` runs. Unlike a time, this figure does not depend on the machine. A search
 * counts from its start position, a split or a copy counts its whole input, and a join counts its result.
 */
export async function bytesHandled(act: () => Promise<void>): Promise<number> {
  let handled = 0;
  const undo: (() => void)[] = [];
  const count = (owner: object, name: string, cost: Cost) => {
    const methods = owner as Record<string, Method>;
    const original = methods[name] as Method;
    methods[name] = function counted(...given) {
      const made = original.apply(this, given);
      handled += cost(this, made, given);
      return made;
    };
    undo.push(() => {
      methods[name] = original;
    });
  };
  const whole: Cost = ({ length }) => length;
  const result: Cost = (_self, made) => (made as { length: number }).length;
  const fromStart: Cost = ({ length }, _found, [, start]) => length - (typeof start === 'number' ? start : 0);
  for (const owner of [Buffer.prototype, String.prototype]) {
    for (const name of SEARCHED) count(owner, name, fromStart);
  }
  count(String.prototype, 'split', whole);
  count(Buffer.prototype, 'copy', whole);
  count(Uint8Array.prototype, 'set', (_self, _made, [bytes]) => (bytes as Sized).length);
  count(Buffer.prototype, 'toString', result);
  count(Buffer, 'concat', result);
  try {
    await act();
  } finally {
    for (const restore of undo) restore();
  }
  return handled;
}
