(* Rule "residuals", exchanges. What any records that change together can do to a residual, exactly: a sum
   over pairs of records of products over features. For an exchange the records are the person and the
   carriers that the table sees. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
From Coq Require Import Ring.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms Residuals Pairing CenteredCosts.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* One identity of numbers, by Coq's decision procedure for rings. *)
Section Identity.
Variables (T : Type) (zero one : T) (add mul sub : T -> T -> T) (opp : T -> T).
Hypothesis th : @ring_theory T zero one add mul sub opp eq.
Add Ring T_ring : th.
Local Notation "x + y" := (add x y).
Local Notation "x * y" := (mul x y).
Local Notation "x - y" := (sub x y).
Lemma swap_identity_of_ring (aa bb ab AA BB CC AB AC BC : T) :
  (aa * AA + bb * BB - ab * AB - ab * AB) + (ab * AC + ab * BC - aa * AC - bb * BC)
  + ((ab * AC + ab * BC - bb * BC - aa * AC) + (bb * CC + aa * CC - ab * CC - ab * CC)) =
  (aa - ab) * (AA + CC - (AC + AC)) + (bb - ab) * (BB + CC - (BC + BC)) + ab * (AA + BB - (AB + AB)).
Proof. ring. Qed.
End Identity.

Lemma as_ring (K : comRingType) : @ring_theory K 0 1 +%R *%R (fun x y => x - y) -%R eq.
Proof.
split=> *; rewrite ?add0r ?addrA ?mul1r ?mulrA ?mulrDl ?subrr //; first by rewrite addrC.
by rewrite mulrC.
Qed.

Lemma swap_identity (K : comRingType) (aa bb ab AA BB CC AB AC BC : K) :
  (aa * AA + bb * BB - ab * AB - ab * AB) + (ab * AC + ab * BC - aa * AC - bb * BC)
  + ((ab * AC + ab * BC - bb * BC - aa * AC) + (bb * CC + aa * CC - ab * CC - ab * CC)) =
  (aa - ab) * (AA + CC - AC *+ 2) + (bb - ab) * (BB + CC - BC *+ 2) + ab * (AA + BB - AB *+ 2).
Proof. rewrite !mulr2n; exact: (swap_identity_of_ring (as_ring K)). Qed.

Section Records.
(* Records I, their cells before (u) and after (v); cells and families as in CenteredCosts.v; the residual
   is centered along the features of the list [fs]. *)
Variables (K : realFieldType) (I F V S : finType) (family : F -> V -> S) (fs : seq F).
Hypothesis fs_uniq : uniq fs.
Notation cell := {ffun F -> V}.
Implicit Types (u v : I -> cell) (D : {set I}).

(* What two cells have in common: one factor per feature. A feature of the residual gives 1 - 1/n for the
   same level, -1/n for another one of its n siblings, 0 for others; any other feature gives 1 for the
   same level and 0 for another one. *)
Definition common (x y : cell) : K := \prod_f shared K family fs f (x f) (y f).

(* The length of the residual of the difference of the two tables. *)
Definition centered_cost u v : K :=
  squared_norm (fun c => residual (families family fs) (table_of K u) c
                       - residual (families family fs) (table_of K v) c).

Lemma residual_of_table D u v : (forall i, i \notin D -> u i = v i) ->
  (fun c => residual (families family fs) (table_of K u) c - residual (families family fs) (table_of K v) c)
  =1 (fun c => \sum_(i in D) (component K family fs (u i) c - component K family fs (v i) c)).
Proof.
move=> same c; rewrite -residual_sub.
have sums (s : seq I) (z : K) : forall w : I -> cell -> K,
    residual (families family fs) (fun c' => \sum_(i <- s) w i c') c =
    \sum_(i <- s) residual (families family fs) (w i) c.
  move=> w; elim: s => [|i s IH].
    rewrite big_nil (residual_ext _ (T' := fun=> 0)) ?residual_zero // => c'.
    by rewrite big_nil.
  rewrite big_cons -IH -residual_add; apply: residual_ext => c'.
  by rewrite big_cons.
rewrite (residual_ext _ (T' := fun c' => \sum_(i <- enum D) ((u i == c')%:R - (v i == c')%:R))).
  rewrite (sums (enum D) 0) big_enum; apply: eq_bigr => i _.
  by rewrite residual_sub.
move=> c'; rewrite /table_of -rmorphB (table_change c' same) /= big_enum sumrB.
by rewrite /count_in rmorphB /= -!pmulrn !natr_sum.
Qed.

(* CENTERED COST OF RECORDS. If only the records of D change, the residual moves by exactly this squared
   length: over all pairs of D, what the cells have in common before, plus after, minus crosswise. *)
Theorem centered_cost_of_records D u v : (forall i, i \notin D -> u i = v i) ->
  centered_cost u v = \sum_(i in D) \sum_(j in D)
    (common (u i) (u j) + common (v i) (v j) - common (u i) (v j) - common (v i) (u j)).
Proof.
move=> same; rewrite /centered_cost (squared_norm_ext (residual_of_table same)) /squared_norm.
pose d i c := component K family fs (u i) c - component K family fs (v i) c.
transitivity (\sum_c \sum_(i in D) \sum_(j in D) d i c * d j c).
  apply: eq_bigr => c _; rewrite expr2 mulr_suml; apply: eq_bigr => i _.
  by rewrite mulr_sumr.
rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => j _ /=.
rewrite /common -!component_inner // -big_split -!sumrB; apply: eq_bigr => c _ /=.
by rewrite /d mulrBl !mulrBr opprB addrA; congr (_ - _); rewrite addrAC.
Qed.

Lemma common_sym x y : common x y = common y x.
Proof.
by apply: eq_bigr => f _; rewrite /shared; case: ifP => _; [exact: kernel_sym|rewrite eq_sym].
Qed.

(* ---- two records that swap the level of one feature ---- *)

Section Swap.
Variables (f0 : F) (u v : I -> cell) (p j : I).
Hypotheses (f0s : f0 \in fs) (jp : j != p).
Hypothesis others : forall i, i \notin [set p; j] -> u i = v i.
Hypotheses (given : v p f0 = u j f0) (taken : v j f0 = u p f0).
Hypothesis kept : forall f, f != f0 -> v j f = u j f.

(* What cells have in common on the features but f0. *)
Definition common_rest (x y : cell) : K := \prod_(f | f != f0) shared K family fs f (x f) (y f).
Definition single_rest (x y : cell) : K :=
  common_rest x x + common_rest y y - common_rest x y *+ 2.

Lemma commonE x y : common x y = kernel K family f0 (x f0) (y f0) * common_rest x y.
Proof. by rewrite /common (bigD1 f0) //= /shared f0s. Qed.

(* This is the cost of a record that goes from x to y, for the residual without f0. *)
Lemma single_restE x y : single_rest x y = squared_norm (residual (families family (rem f0 fs))
  (fun c => (single_move x (with_level f0 y (x f0)) c)%:~R)).
Proof.
rewrite centered_single_move ?rem_uniq //.
have E (x' y' : cell) : x' f0 = y' f0 ->
    \prod_f shared K family (rem f0 fs) f (x' f) (y' f) = common_rest x' y'.
  move=> e; rewrite (bigD1 f0) //= {1}/shared mem_rem_uniq // !inE eqxx e eqxx mul1r.
  by apply: eq_bigr => f ff; rewrite /shared mem_rem_uniq // !inE ff.
have same (x' y' : cell) : (forall f, f != f0 -> x' f = y' f) -> forall z, common_rest z x' = common_rest z y'.
  by move=> h z; apply: eq_bigr => f ff; rewrite h.
have sym x' y' : common_rest x' y' = common_rest y' x'.
  by apply: eq_bigr => f _; rewrite /shared; case: ifP => _; [exact: kernel_sym|rewrite eq_sym].
have lev f : f != f0 -> with_level f0 y (x f0) f = y f by move=> /negbTE ff; rewrite ffunE ff.
have here : x f0 = with_level f0 y (x f0) f0 by rewrite ffunE eqxx.
rewrite !E // /single_rest; congr (_ + _ - _ *+ 2);
  by apply: eq_bigr => f ff; rewrite ?lev.
Qed.

Lemma common_rest_sym x y : common_rest x y = common_rest y x.
Proof.
by apply: eq_bigr => f _; rewrite /shared; case: ifP => _; [exact: kernel_sym|rewrite eq_sym].
Qed.

(* SWAP OF ONE LEVEL. The person has level a of feature f0 and takes level b from a carrier, who takes a;
   the carrier keeps all other features. The residual moves by exactly this squared length, in terms of
   what the remaining features cost if one record moves: from the person's old cell to the carrier's,
   from the new one to the carrier's, and from the old to the new one. *)
Theorem centered_cost_of_swap (k := kernel K family f0) (a := u p f0) (b := u j f0) :
  centered_cost u v = (k a a - k a b) * single_rest (u p) (u j)
    + (k b b - k a b) * single_rest (v p) (u j) + k a b * single_rest (u p) (v p).
Proof.
have two (h : I -> K) : \sum_(i in [set p; j]) h i = h p + h j.
  by rewrite big_setU1 ?big_set1 //= inE eq_sym.
have rest x : common_rest x (v j) = common_rest x (u j).
  by apply: eq_bigr => f ff; rewrite kept.
rewrite (centered_cost_of_records others) !two !commonE given taken -/a -/b -/k.
rewrite ![common_rest (v j) _]common_rest_sym !rest ![common_rest (u j) (u p)]common_rest_sym.
rewrite ![common_rest (u j) (v p)]common_rest_sym ![common_rest (v p) (u p)]common_rest_sym.
have -> : k b a = k a b by apply: kernel_sym.
rewrite [common_rest (v j) (u j)]common_rest_sym rest.
exact: swap_identity.
Qed.

Lemma single_rest_pos x y : 0 <= single_rest x y.
Proof. by rewrite single_restE; apply: sumr_ge0 => c _; apply: sqr_ge0. Qed.

Lemma swap_bound : u p f0 != u j f0 ->
  centered_cost u v <= single_rest (u p) (u j) + single_rest (v p) (u j).
Proof.
move=> ab; rewrite centered_cost_of_swap; set k := kernel K family f0.
have neg : k (u p f0) (u j f0) = - `|k (u p f0) (u j f0)|.
  rewrite /k /kernel (negbTE ab) sub0r normrN ger0_norm //.
  by rewrite mulr_ge0 ?ler0n // invr_ge0 ltW // siblings_pos.
have one := kernel_sum K family f0 ab; have ba := ab; rewrite eq_sym in ba.
have two := kernel_sum K family f0 ba; rewrite [kernel _ _ _ (u j f0) (u p f0)]kernel_sym in two.
rewrite -/k in one two; rewrite neg opprK -[X in _ <= X]addr0.
apply: ler_add; last by rewrite mulNr oppr_le0 mulr_ge0 // single_rest_pos.
by apply: ler_add; rewrite -[X in _ <= X]mul1r ler_wpmul2r // single_rest_pos.
Qed.

End Swap.
End Records.

(* ---- exchanges ---- *)

Section Exchanges.
Variables (K : realFieldType) (n : nat) (F B V N M S : finType) (block : F -> B) (node : F -> V -> N).
Variables (label : F -> V -> M) (family : F -> M -> S) (fs : seq F).
Hypotheses (fs_uniq : uniq fs) (chains : forall f, on_chain node label f).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation carriers := (@carriers record B _ tuple_in n).
Local Notation exchange := (@exchange n F B V N block node).
Local Notation cells := (@cells n F V M label).
Local Notation seen_blocks := (seen_blocks block node label).
Implicit Types (X Y : dataset) (p i j : 'I_n) (y : record) (b : B) (f : F).

(* CENTERED COST OF AN EXCHANGE. The person p becomes y, with carriers c. The residual moves by exactly this
   squared length: a sum over pairs of the person and the carriers that the table sees, of products over
   features. *)
Theorem centered_cost_of_exchange X p y c (Y := exchange X p y c)
    (D := p |: seen_carriers block node label X p y c) (k := common K family fs) : carriers X p y c ->
  centered_cost K family fs (cells X) (cells Y) = \sum_(i in D) \sum_(j in D)
    (k (cells X i) (cells X j) + k (cells Y i) (cells Y j) - k (cells X i) (cells Y j) - k (cells Y i) (cells X j)).
Proof. by move=> hc; apply: centered_cost_of_records => // i; apply: others_unseen. Qed.

Variable few : nat.
Hypothesis few_siblings : forall f v, siblings K family f v <= few%:R.

(* NOTHING PUBLISHED IS SEEN. If the table sees no block that changes and the residual has at least two
   features, none with more than N siblings, the residual moves by at most 2 (1 - 1/N). *)
Theorem centered_exchange_unpublished X p y c f g : carriers X p y c -> seen_blocks (X p) y = set0 ->
  f \in fs -> g \in fs -> f != g ->
  centered_cost K family fs (cells X) (cells (exchange X p y c)) <= (1 - few%:R^-1) *+ 2.
Proof.
move=> hc none ff gf fg; rewrite centered_cost_of_exchange // /seen_carriers none imset0 setU0 !big_set1.
have single := centered_cost_below_two fs_uniq (cells X p) (cells (exchange X p y c) p) ff gf fg few_siblings.
apply: le_trans single.
rewrite centered_single_move // mulr2n opprD !addrA /common.
rewrite le_eqVlt; apply/orP; left; apply/eqP; congr (_ - _).
by apply: eq_bigr => e _; rewrite /shared; case: ifP => _; [exact: kernel_sym|rewrite eq_sym].
Qed.

(* ONE PUBLISHED FEATURE IS SEEN. The table sees one block that changes, by the one feature f0 of the
   residual, at most at the published depth. Then the residual moves by at most 4 (1 - 1/N) if it has at least
   two more features, none with more than N siblings; the table moves by up to 4. *)
Theorem centered_exchange_one_feature X p y c f0 f g : carriers X p y c ->
  f0 \in fs -> f \in fs -> g \in fs -> f != f0 -> g != f0 -> f != g ->
  (forall v w, node f0 v = node f0 w -> label f0 v = label f0 w) ->
  (forall e, moves node (X p) y e -> label e (X p e) != label e (y e) -> e = f0) ->
  moves node (X p) y f0 -> label f0 (X p f0) != label f0 (y f0) ->
  centered_cost K family fs (cells X) (cells (exchange X p y c)) <= (1 - few%:R^-1) *+ 4.
Proof.
move=> hc f0s fs1 gs ff0 gf0 fg coarse only mv la; set Y := exchange X p y c.
have seen : seen_blocks (X p) y = [set block f0].
  apply/setP=> b; apply/seen_blocksP/set1P => [[e [<- m l]]|->]; last by exists f0; split=> //; apply/eqP.
  by rewrite (only e m) //; apply/eqP.
have d : block f0 \in differ tuple_in (X p) y := moves_differ _ mv.
pose j := c (block f0); have jp : j != p := carrier_other hc d.
have hnode f' : block f' = block f0 -> node f' (X j f') = node f' (y f') by move=> e; apply: carrier_node hc d e.
have others i : i \notin [set p; j] -> cells X i = cells Y i.
  by move=> h; apply: (others_unseen chains hc); rewrite /seen_carriers seen imset_set1.
have given : cells Y p f0 = cells X j f0.
  by rewrite /ExchangeNorms.cells /Y exchange_person !ffunE; apply/esym/coarse/hnode.
have taken : cells Y j f0 = cells X p f0.
  by rewrite /ExchangeNorms.cells /ExchangeNorms.cell [LHS]ffunE [RHS]ffunE /Y exchange_other // mv eqxx.
have kept e : e != f0 -> cells Y j e = cells X j e.
  move=> ne; rewrite /ExchangeNorms.cells /ExchangeNorms.cell [LHS]ffunE [RHS]ffunE /Y exchange_other //.
  case: ifP => // /andP[m /eqP ce].
  have same : label e (X p e) = label e (y e).
    by apply/eqP; apply: contraT => l; rewrite (only e m l) eqxx in ne.
  case: (chains e) => h; last by move: m; rewrite /Features.moves (h _ _ same) eqxx.
  by rewrite same; apply/esym/h; rewrite -ce; apply: carrier_node hc (moves_differ _ m) erefl.
have ab : cells X p f0 != cells X j f0 by rewrite -given /ExchangeNorms.cells /Y exchange_person !ffunE.
have h := @swap_bound K _ _ _ _ family _ fs_uniq _ _ _ _ _ f0s jp others given taken kept ab.
apply: le_trans h _.
have fr e : e \in fs -> e != f0 -> e \in rem f0 fs by move=> h ne; rewrite mem_rem_uniq // !inE ne.
rewrite -[4%N]/(2 + 2)%N mulrnDr; apply: ler_add; rewrite single_restE //.
  exact: (centered_cost_below_two (rem_uniq _ fs_uniq) _ _ (fr f fs1 ff0) (fr g gs gf0) fg few_siblings).
exact: (centered_cost_below_two (rem_uniq _ fs_uniq) _ _ (fr f fs1 ff0) (fr g gs gf0) fg few_siblings).
Qed.

End Exchanges.
