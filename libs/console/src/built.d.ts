/** What the build makes of main.tsx and style.css (scripts/lib/page.mjs). It is there only after `npm run build`. */
declare module '*/built.js' {
  export const FILES: import('./index.ts').PageFiles;
}
