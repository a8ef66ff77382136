/** How good a state is, for its colour. */
export type Tone = 'good' | 'warn' | 'bad' | 'calm';

const MARKS: Readonly<Record<Tone, string>> = { good: '●', warn: '▲', bad: '■', calm: '○' };

/** A state in a word, with a mark and a colour: no colour stands alone. */
export function State({ tone, word }: { readonly tone: Tone; readonly word: string }) {
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true">{MARKS[tone]}</span> {word}
    </span>
  );
}
