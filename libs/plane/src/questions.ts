import type { Directory } from '@isthmus/directory';
import { printable } from '@isthmus/runtime';
import type { Ask, Question } from '@isthmus/tunnel';
import { PLANE } from './defaults.ts';

/** The links over which a member can ask. */
export interface AskingLinks {
  /** Returns the way to a process that has a link here. */
  direct(to: Question['to']): Ask | undefined;
  /** Members with links here, which may have links to others. */
  neighbours(): Iterable<string>;
}

/**
 * Passes questions of operators to the process that they are for: this one, one that has a link here, or one that has a link to a member
 * with a link here.
 */
export class Questions {
  readonly #own: string;
  readonly #directory: Pick<Directory, 'ofAgent'>;
  #links: AskingLinks | undefined;
  #local: Ask | undefined;

  /** @param own the id of this member */
  constructor(own: string, directory: Pick<Directory, 'ofAgent'>) {
    this.#own = own;
    this.#directory = directory;
  }

  /** Call when there are links. */
  link(links: AskingLinks): void {
    this.#links = links;
  }

  /** Call when this process can answer. */
  serve(local: Ask): void {
    this.#local = local;
  }

  /** Asks for an operator at this member's own admin port. */
  readonly ask: Ask = (question, signal) => {
    const direct = this.#direct(question.to);
    return direct ? direct(question, signal) : this.#pass(question, signal);
  };

  /** Answers a question that came over a link. It is passed on once more at most: by a gateway, to a hub of the agent that it is for. */
  readonly answer: Ask = (question, signal) => {
    const { to, operator } = question;
    const direct = this.#direct(to);
    const foreign = 'tenant' in to && operator.tenant !== undefined && operator.tenant !== to.tenant;
    const passed = { ...question, passed: true };
    if (direct && !foreign) return direct(passed, signal);
    if ('agent' in to && !foreign && !question.passed) return this.#pass(passed, signal);
    throw new Error(`${this.#own} ${NO_LINK} ${nameOf(to)}`);
  };

  #direct(to: Question['to']): Ask | undefined {
    if ('member' in to && to.member === this.#own) return this.#local ?? starting;
    return this.#links?.direct(to);
  }

  /** Asks through the first neighbour that answers. */
  async *#pass(question: Question, signal: AbortSignal): AsyncIterable<unknown> {
    const { to } = question;
    const ways = [...this.#neighbours(to)].flatMap((member) => this.#links?.direct({ member }) ?? []);
    if (ways.length === 0) throw new Error(`${this.#own} ${NO_LINK} ${nameOf(to)}`);
    const { iterator, result } = await firstToAnswer(ways.slice(0, PLANE.neighboursAsked), question, signal);
    if (result.done) return;
    yield result.value;
    yield* { [Symbol.asyncIterator]: () => iterator };
  }

  /** Those that may know the way: to an agent, its hubs, or at a hub the gateways, which have links to them; to a member, all others. */
  #neighbours(to: Question['to']): Iterable<string> {
    const all = this.#links?.neighbours() ?? [];
    if (!('agent' in to)) return all;
    const sessions = this.#directory.ofAgent({ tenant: to.tenant, agentId: to.agent });
    const hubs = [...new Set([...sessions].map(({ record }) => record.hubId))];
    const linked = hubs.filter((member) => this.#links?.direct({ member }));
    return hubs.length > 0 && linked.length === 0 ? all : linked;
  }
}

/** Says that a process was not asked. */
const NO_LINK = 'has no link to';

interface First {
  readonly iterator: AsyncIterator<unknown>;
  readonly result: IteratorResult<unknown>;
}

/**
 * Asks in one way after the other, until one answers: the next when one fails, or is silent for a while and the question changes nothing.
 * Rejects with the last reason.
 */
function firstToAnswer(ways: readonly Ask[], question: Question, signal: AbortSignal): Promise<First> {
  return new Promise((resolve, reject) => {
    const asked = new Set<AbortController>();
    let next = 0;
    let timer: NodeJS.Timeout | undefined;
    const tryNext = (fault?: Error) => {
      clearTimeout(timer);
      const way = ways[next++];
      if (way) void attempt(way);
      else if (asked.size === 0) reject(fault);
    };
    const attempt = async (way: Ask) => {
      const own = new AbortController();
      asked.add(own);
      if (question.reads) timer = setTimeout(tryNext, PLANE.neighbourMs);
      try {
        const iterator = way(question, AbortSignal.any([signal, own.signal]))[Symbol.asyncIterator]();
        const result = await iterator.next();
        asked.delete(own);
        clearTimeout(timer);
        for (const other of asked) other.abort();
        resolve({ iterator, result });
      } catch (error) {
        asked.delete(own);
        // What acts may have been done where it failed.
        const undone = question.reads || (error as Error).message.includes(NO_LINK);
        if (own.signal.aborted) return;
        if (undone) tryNext(error as Error);
        else reject(error);
      }
    };
    tryNext();
  });
}

const starting: Ask = () => {
  throw new Error('it is starting');
};

function nameOf(to: Question['to']): string {
  return 'member' in to ? printable(to.member) : `agent ${printable(to.agent)} of tenant ${printable(to.tenant)}`;
}
