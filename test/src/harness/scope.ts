import { after, type TestContext } from 'node:test';

/** What a test started. It ends in reverse order when the test ends, whether the test passed or not. */
export class Scope implements AsyncDisposable {
  readonly #ends: (() => unknown)[] = [];
  readonly #used: AsyncDisposable[] = [];
  readonly #controller = new AbortController();

  /** Aborts when the scope begins to end. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  defer(end: () => unknown): void {
    this.#ends.push(end);
  }

  /** What its programs printed last. */
  get tails(): string {
    return this.#used.map((each) => ('tail' in each ? each.tail : '')).join('');
  }

  use<T extends AsyncDisposable>(resource: T): T {
    this.#used.push(resource);
    this.defer(() => resource[Symbol.asyncDispose]());
    return resource;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort();
    const failures: unknown[] = [];
    for (let end = this.#ends.pop(); end; end = this.#ends.pop()) {
      try {
        await end();
      } catch (failure) {
        failures.push(failure);
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'could not end all that the test started');
  }
}

/**
 * The body of a test that gets its own scope: `test('...', scoped(async (scope) => { ... }))`. If it fails, what its programs printed last goes to
 * stderr.
 */
export function scoped(body: (scope: Scope, context: TestContext) => Promise<void>) {
  return async (context: TestContext): Promise<void> => {
    await using scope = new Scope();
    try {
      await body(scope, context);
    } catch (error) {
      if (scope.tails !== '') process.stderr.write(`${context.name}:${scope.tails}\n`);
      throw error;
    }
  };
}

/**
 * Returns what gives all tests of a file the same thing. It starts when the first of them asks for it, and ends after the last. Call it while
 * the file is loaded.
 */
export function sharedByFile<T>(start: (scope: Scope) => Promise<T>): () => Promise<T> {
  const scope = new Scope();
  let started: Promise<T> | undefined;
  after(() => scope[Symbol.asyncDispose]());
  return () => {
    started ??= start(scope);
    return started;
  };
}
