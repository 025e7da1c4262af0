/** Launcher cards: "Python 3 · ½ GPU" for each preset, and one that opens the dialog. */
import { ILauncher } from '@jupyterlab/launcher';
import { KernelSpec } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReadonlyJSONObject } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';

import { COMMANDS } from '../commands';
import { gpuIconUrl } from '../icon';
import { Preset } from '../schema';
import { IGpuShare } from '../tokens';

/** More cards would hide the kernels themselves. */
const MAX_CARDS = 4;
const RANK = 50;

export class Cards {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly kernelspecs: KernelSpec.IManager,
    private readonly launcher: ILauncher,
    private readonly category: string,
    private readonly trans: TranslationBundle
  ) {
    gpushare.changed.connect(() => this.render());
    void kernelspecs.ready.then(() => this.render());
  }

  show(isEnabled: boolean): void {
    this.isEnabled = isEnabled;
    this.render();
  }

  /** Update the cards if the presets changed. */
  private render(): void {
    const presets = this.isEnabled ? (this.gpushare.state.status?.presets ?? []) : [];
    const spec = this.kernelspecs.specs?.kernelspecs[this.kernelspecs.specs.default];
    const items =
      presets.length === 0 || spec === undefined
        ? []
        : this.items(presets.slice(0, MAX_CARDS), spec);
    const text = JSON.stringify(items);
    if (text !== this.rendered) {
      this.rendered = text;
      this.cards.forEach(card => card.dispose());
      this.cards = items.map(item => this.launcher.add(item));
    }
  }

  private items(presets: readonly Preset[], spec: KernelSpec.ISpecModel): ILauncher.IItemOptions[] {
    const { category, trans } = this;
    const kernel = spec.display_name.replace(/ \(ipykernel\)$/, '');
    const cards = presets.map((preset, index) => ({
      command: COMMANDS.create,
      args: {
        kernel: spec.name,
        request: { preset: preset.name },
        label: `${kernel} · ${preset.name}`,
        caption: preset.description || trans.__('New notebook with %1', preset.name)
      } as ReadonlyJSONObject,
      category,
      kernelIconUrl: gpuIconUrl,
      rank: RANK + index
    }));
    return [
      ...cards,
      {
        command: COMMANDS.ask,
        args: { isLauncher: true },
        category,
        kernelIconUrl: gpuIconUrl,
        rank: RANK + MAX_CARDS
      }
    ];
  }

  private isEnabled = true;
  private rendered = '[]';
  private cards: IDisposable[] = [];
}
