/** A member of `Rounds`, which alone writes these fields. */
export interface TakesTurns {
  /** Who comes after it; undefined while it has nothing to do. */
  next: this | undefined;
  /** What it may still spend in its turn. At 0 or less it has spent more, and owes. */
  credit: number;
}

/**
 * Members take turns by deficit round robin (Shreedhar and Varghese, 1995). A turn is over once its member has spent a quantum. What it
 * spent beyond that counts against its next turn, so that in the long run all spend alike, however large each cost is. No operation
 * depends on how many members there are, except `spend` of more than a quantum at once.
 */
export class Rounds<M extends TakesTurns> {
  readonly #quantum: number;
  /** Its `next` has the turn: members are linked in a circle. */
  #last: M | undefined;
  /** Members that have something to do. Its own methods alone change it. */
  size = 0;

  constructor(quantum: number) {
    this.#quantum = quantum;
  }

  /** Whose turn it is; undefined if nobody has anything to do. */
  get current(): M | undefined {
    return this.#last?.next;
  }

  /** A member has something to do. A new one comes last in the round, with a quantum less what it owes. */
  enter(member: M): void {
    if (member.next !== undefined) return;
    member.credit += this.#quantum;
    const last = this.#last;
    member.next = last ? last.next : member;
    if (last) last.next = member;
    this.#last = member;
    this.size++;
  }

  /** The current member has used some of its turn. */
  spend(cost: number): void {
    // Alone, there is nobody to be fair to.
    if (this.size < 2) return;
    const current = this.current as M;
    current.credit -= cost;
    if (current.credit <= 0) this.pass();
  }

  /** Ends the turn of the current member. Skips those that still pay for an earlier turn. */
  pass(): void {
    do {
      const over = this.current as M;
      over.credit = Math.min(over.credit, 0) + this.#quantum;
      this.#last = over;
    } while ((this.current as M).credit <= 0);
  }

  /** The current member has nothing more to do. It keeps its debt, and no credit. */
  leave(): void {
    const last = this.#last as M;
    const gone = last.next as M;
    if (gone === last) this.#last = undefined;
    else last.next = gone.next;
    gone.next = undefined;
    gone.credit = Math.min(gone.credit, 0);
    this.size--;
  }
}
