/** How good a state is, for its colour. */
export type Tone = 'good' | 'warn' | 'bad' | 'calm';

const MARKS: Readonly<Record<Tone, string>> = { good: '●', warn: '▲', bad: '■', calm: '○' };

/** Characters of a state that stays beside its mark. */
const BRIEF = 20;

/** A state in a word, with a mark and a colour: no colour stands alone. */
export function State({ tone, word }: { readonly tone: Tone; readonly word: string }) {
  return (
    <span class={`state ${tone}${word.length > BRIEF ? '' : ' brief'}`}>
      <span aria-hidden="true">{MARKS[tone]}</span> {word}
    </span>
  );
}
