(* Rule "residuals". Residuals: tables from which the means of siblings are subtracted. The cost
   of a move is at most the sum of k_d / sigma_d^2, where k_d bounds the squared l2 norm of table d; and
   a residual below a published margin is the same for all datasets of D_t. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Features Exchange Tables ExchangeNorms.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Centering.
(* Numbers in any ordered field, for instance the rationals. *)
Variables (K : realFieldType) (C S : finType).
Implicit Types (T : C -> K) (family : C -> S).

Definition squared_norm T : K := \sum_c T c ^+ 2.

(* The mean over the siblings of a cell: the cells with the same family. *)
Definition siblings_mean family T c : K :=
  (\sum_(c' | family c' == family c) T c') / #|[set c' | family c' == family c]|%:R.

(* Subtract from every cell the mean of its siblings, along one feature. *)
Definition center family T c : K := T c - siblings_mean family T c.

(* The residual: center along every feature in turn. *)
Definition residual (families : seq (C -> S)) T : C -> K := foldr center T families.

(* CENTERING SHORTENS. Subtracting the means of siblings never lengthens a table in l2. *)
Theorem centering_shortens family T : squared_norm (center family T) <= squared_norm T.
Proof.
have byfamily (h : C -> K) : \sum_c h c = \sum_s \sum_(c | family c == s) h c.
  by rewrite (partition_big family predT).
rewrite /squared_norm !byfamily; apply: ler_sum => s _.
set total := \sum_(c | family c == s) T c; set k : K := #|[set c | family c == s]|%:R.
have meanE c : family c == s -> center family T c = T c - total / k.
  by move=> /eqP e; rewrite /center /siblings_mean e.
rewrite (eq_bigr (fun c => T c ^+ 2 - (T c * (total / k) *+ 2 - (total / k) ^+ 2))); last first.
  by move=> c /meanE ->; rewrite sqrrB opprB addrA addrAC.
rewrite sumrB ler_subl_addr ler_addl sumrB sumrMnl -mulr_suml -/total sumr_const.
rewrite (_ : #|_| = #|[set c | family c == s]|); last by apply: eq_card => c; rewrite !inE.
rewrite -[X in _ - X]mulr_natr -/k; case: (eqVneq k 0) => [->|k0].
  by rewrite invr0 !mulr0 mul0rn subr0.
have -> : (total / k) ^+ 2 * k = total * (total / k).
  by rewrite expr2 -mulrA divfK // mulrC.
rewrite mulr2n addrK mulrA -expr2; apply: divr_ge0; first exact: sqr_ge0.
exact: ler0n.
Qed.

(* RESIDUALS ARE SHORTER THAN TABLES: k_d <= Delta_2^2(M_d). *)
Theorem residual_shortens families T : squared_norm (residual families T) <= squared_norm T.
Proof. by elim: families => //= family s IH; apply: le_trans (centering_shortens _ _) IH. Qed.

Lemma center_sub family T T' c :
  center family (fun c => T c - T' c) c = center family T c - center family T' c.
Proof. by rewrite /center /siblings_mean sumrB mulrBl opprD addrACA -opprD. Qed.

Lemma center_ext family T T' : T =1 T' -> center family T =1 center family T'.
Proof. by move=> e c; rewrite /center /siblings_mean e; congr (_ - _ / _); apply: eq_bigr. Qed.

Lemma residual_ext families T T' : T =1 T' -> residual families T =1 residual families T'.
Proof. by move=> e; elim: families => //= family s IH; apply: center_ext. Qed.

(* The residual of a difference is the difference of the residuals. *)
Lemma residual_sub families T T' c :
  residual families (fun c => T c - T' c) c = residual families T c - residual families T' c.
Proof.
elim: families c => //= family s IH c; rewrite -center_sub.
exact: center_ext.
Qed.

Lemma residual_zero families c : residual families (fun=> 0) c = 0.
Proof.
have := residual_sub families (fun=> 0) (fun=> 0) c.
by rewrite (residual_ext families (T' := fun=> 0)) => [->|c']; rewrite subrr.
Qed.

Lemma residual_add families T T' c :
  residual families (fun c => T c + T' c) c = residual families T c + residual families T' c.
Proof.
have e : (fun c => T c + T' c) =1 (fun c => T c - (0 - T' c)).
  by move=> c'; rewrite sub0r opprK.
rewrite (residual_ext families e) residual_sub.
by rewrite (residual_sub families (fun=> 0) T') residual_zero sub0r opprK.
Qed.

Lemma squared_norm_ext T T' : T =1 T' -> squared_norm T = squared_norm T'.
Proof. by move=> e; apply: eq_bigr => c _; rewrite e. Qed.

End Centering.

Section Cost.
Variables (K : realFieldType) (I D C S : finType).
(* The residuals d that are measured, each with a table (f d: the cells before, g d: after), the
   families along its features, and the variance of its noise. *)
Variables (f g : D -> I -> C) (families : D -> seq (C -> S)) (variance : D -> K).

Definition table_of (h : I -> C) c : K := (table h c)%:~R.
Definition residual_of d (h : I -> C) := residual (families d) (table_of h).

(* The cost of the move from f to g: sum of |r_d before - r_d after|^2 / sigma_d^2 (mu^2 for Gaussian
   noise, 2 rho for zCDP). *)
Definition cost : K :=
  \sum_d squared_norm (fun c => residual_of d (f d) c - residual_of d (g d) c) / variance d.

(* COST OF A MOVE. If table d moves by at most k_d in squared l2, the move costs at most the sum of
   k_d / sigma_d^2. *)
Theorem cost_of_move (k : D -> int) : (forall d, 0 < variance d) ->
  (forall d, l2_squared (f d) (g d) <= k d) -> cost <= \sum_d (k d)%:~R / variance d.
Proof.
move=> pos hk; apply: ler_sum => d _; rewrite ler_pmul2r ?invr_gt0 //.
have e := residual_sub (families d) (table_of (f d)) (table_of (g d)).
rewrite -(squared_norm_ext e); apply: le_trans (residual_shortens _ _) _.
have -> : squared_norm (fun c => table_of (f d) c - table_of (g d) c) = (l2_squared (f d) (g d))%:~R.
  rewrite /squared_norm /l2_squared rmorph_sum; apply: eq_bigr => c _.
  by rewrite rmorphX rmorphB.
by rewrite ler_int.
Qed.

End Cost.

(* NO NOISE NEEDED. If the cell of table d is a function of the published value of one block, its
   residual is the same for all datasets of D_t. *)
Theorem residual_below_published (K : realFieldType) (R B W C S : finType) (published : R -> B -> W)
    (b : B) (h : W -> C) (families : seq (C -> S)) n (X Y : dataset R n) :
  same_totals published X Y ->
  let r Z := residual families (table_of K (fun i : 'I_n => h (published (Z i) b))) in
  r X =1 r Y.
Proof.
move=> /same_totalsP same r; apply: residual_ext => c; rewrite /table_of; congr (_ %:~R).
exact: (@table_of_totals _ _ _ (fun i => published (X i) b) (fun i => published (Y i) b) h (same b)).
Qed.

(* COST OF AN EXCHANGE. Residual d belongs to a table that shows labels [label d] and touches q_d
   blocks. One exchange costs at most the sum of (q_d^2 + q_d + 2) / sigma_d^2. *)
Theorem cost_of_exchange (K : realFieldType) (n : nat) (F B V N M D S : finType) (block : F -> B)
    (node : F -> V -> N) (label : D -> F -> V -> M) (families : D -> seq ({ffun F -> M} -> S))
    (variance : D -> K) (X Y : dataset (record F V) n)
    (q := fun d => #|touched block node (label d) X|) :
  (forall d f, on_chain node (label d) f) -> (forall d, 0 < variance d) -> adjacent block node X Y ->
  cost (fun d => cells (label d) X) (fun d => cells (label d) Y) families variance
    <= \sum_d (q d ^ 2 + q d + 2)%N%:R / variance d.
Proof.
move=> chains pos h; pose k d := Posz (q d ^ 2 + q d + 2)%N.
apply: (@cost_of_move _ _ _ _ _ _ _ _ _ k) => // d.
by have [_] := exchange_norms (chains d) h.
Qed.
