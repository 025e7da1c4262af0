/** A made-up language: every string of ours between brackets. What a page then shows without brackets was never offered for translation. */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const ts = require('typescript');
const SOURCES = new URL('../../labextension/src', import.meta.url).pathname;
const BEGIN = '⟦';
const END = '⟧';

export const DOMAIN = 'jupyter_gpushare';

/** The strings of `trans.__` and `trans._n` in our sources, as a language pack has them; `strange`: calls whose words cannot be read from the source. */
export function catalogue() {
  const words = {};
  const strange = [];
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
          strange.push(`${file}: ${node.getText()}`);
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
    strange
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

/** Have JupyterLab speak it, from the next load of the page on. */
export async function speak(page) {
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
 * What a part of the page says outside of the brackets, in text and in what is read out or shown as a hint. `data`: words of servers and people,
 * which stay as they are.
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

/** Brackets may stand in brackets: a sentence takes another as its argument. */
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
