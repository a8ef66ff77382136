/** What is counted of buffers, and of strings. */
const SEARCHED = ['indexOf', 'includes'] as const;

type Sized = { readonly length: number };
type Method = (this: Sized, ...given: unknown[]) => unknown;
type Cost = (self: Sized, result: unknown, given: readonly unknown[]) => number;

/**
 * How many bytes are looked at and copied while `act` runs: a figure of the work, which does not depend on the machine as a time does.
 * What is searched counts from where the search begins, what is split or copied whole, and what is put together by its result.
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
