import {
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';

const panel: JupyterFrontEndPlugin<void> = {
  id: 'nbagent:panel',
  description: 'The panel of nbagent.',
  autoStart: true,
  activate: (app: JupyterFrontEnd): void => {
    console.warn('nbagent', app.name);
  }
};

export default [panel];
