import { fork } from 'node:child_process';
import { once } from 'node:events';
import { killChild, within } from '../../harness/index.ts';
import type { FloodDone, FloodSettings } from './messages.ts';

/** How long a flood may take to begin, in milliseconds: it opens 5,000 tunnels, and a plane that is fair lets it wait. */
const BEGIN_WITHIN = 300_000;

/** A tenant's flood, in its own process. */
export class Flooding {
  readonly #child: ReturnType<typeof fork>;

  private constructor(child: ReturnType<typeof fork>) {
    this.#child = child;
  }

  static async begin(settings: FloodSettings): Promise<Flooding> {
    const child = fork(new URL('./flood.ts', import.meta.url));
    const begun = once(child, 'message');
    child.send(settings);
    try {
      await within(begun, { deadline: BEGIN_WITHIN, what: 'the flood to begin' });
      return new Flooding(child);
    } catch (error) {
      await killChild(child);
      throw error;
    }
  }

  async done(): Promise<FloodDone> {
    const answer = once(this.#child, 'message');
    this.#child.send('done');
    const [done] = await within(answer, { what: 'what the flood has done' });
    return done as FloodDone;
  }

  end(): Promise<void> {
    return killChild(this.#child);
  }
}
