/**
 * A pseudo language: every string of ours in brackets. Text without brackets is not translatable.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const ts = require('typescript');
const SOURCES = new URL('../../labextension/src', import.meta.url).pathname;
const BEGIN = '⟦';
const END = '⟧';

export const DOMAIN = 'jupyter_gpushare';

/**
 * The strings of `trans.__` and `trans._n` as a language pack has them; `unreadable`: calls
 * without string literals.
 */
export function catalogue() {
  const words = {};
  const unreadable = [];
  const pseudo = text => `${BEGIN}${text}${END}`;
  for (const file of sources(SOURCES)) {
    const tree = ts.createSourceFile(
      file,
      readFileSync(file, 'utf8'),
      ts.ScriptTarget.Latest,
      true,
      ts.ScriptKind.TSX
    );
    const look = node => {
      const name =
        ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)
          ? node.expression.name.text
          : null;
      if (name === '__' || name === '_n') {
        const given = node.arguments.slice(0, name === '_n' ? 2 : 1);
        if (given.every(ts.isStringLiteralLike)) {
          words[given[0].text] = given.map(one => pseudo(one.text));
        } else if (!node.getText().includes("load('jupyterlab')")) {
          unreadable.push(`${file}: ${node.getText()}`);
        }
      }
      ts.forEachChild(node, look);
    };
    look(tree);
  }
  return {
    words: {
      '': { domain: DOMAIN, language: 'eo-UY', plural_forms: 'nplurals=2; plural=(n != 1);' },
      ...words
    },
    unreadable
  };
}

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    return entry.isDirectory()
      ? entry.name === '__tests__'
        ? []
        : sources(path)
      : /\.tsx?$/.test(entry.name)
        ? [path]
        : [];
  });
}

/** Switch JupyterLab to the pseudo language and reload. */
export async function switchLanguage(page) {
  const { words } = catalogue();
  await page.route(/\/api\/translations\/./, route =>
    route.fulfill({ json: { data: { [DOMAIN]: words }, message: '' } })
  );
  const settings = '@jupyterlab/translation-extension:plugin';
  await page.evaluate(
    ([id]) => window.jupyterapp.serviceManager.settings.save(id, '{"locale": "eo_UY"}'),
    [settings]
  );
  await page.reload();
  await page.waitForFunction(() => window.jupyterapp !== undefined);
  await page.evaluate(() => window.jupyterapp.restored);
}

/**
 * Text, tooltips and accessible names outside of brackets. `data`: names and server messages,
 * which are not translated.
 */
export async function untranslated(page, selector, data) {
  const said = await page.evaluate(selector => {
    const found = [];
    for (const part of document.querySelectorAll(selector)) {
      const nodes = document.createTreeWalker(part, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
      for (let node = nodes.currentNode; node !== null; node = nodes.nextNode()) {
        if (node.nodeType === Node.TEXT_NODE) {
          found.push(node.textContent);
        } else {
          found.push(
            ...['title', 'aria-label', 'placeholder', 'aria-valuetext', 'alt'].map(
              name => node.getAttribute(name) ?? ''
            )
          );
        }
      }
    }
    return found;
  }, selector);
  return [...new Set(said.map(text => rest(text, data)).filter(text => /\p{L}{2,}/u.test(text)))];
}

/** Brackets may be nested: a string takes another as its argument. */
function rest(text, data) {
  let left = text;
  for (let before = ''; before !== left;) {
    before = left;
    left = left.replace(/⟦[^⟦⟧]*⟧/g, '');
  }
  return [...data]
    .sort((a, b) => b.length - a.length)
    .reduce((words, one) => words.split(one).join(''), left)
    .trim();
}
